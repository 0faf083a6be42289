// The frame in which a notebook shows a page is a sandbox: reading its storage is an error, and its address cannot change. There,
// what the page stores is kept until it is closed, and the selection is not written to the address.

export function allowSandbox(): void {
  try {
    void window.localStorage;
  } catch {
    for (const name of ["localStorage", "sessionStorage"]) Object.defineProperty(window, name, { value: inMemory() });
  }
  if (location.protocol === "about:") history.replaceState = history.pushState = () => undefined;
}

function inMemory(): Pick<Storage, "getItem" | "setItem" | "removeItem"> {
  const kept = new Map<string, string>();
  return { getItem: (name) => kept.get(name) ?? null, setItem: (name, value) => void kept.set(name, value), removeItem: (name) => void kept.delete(name) };
}
