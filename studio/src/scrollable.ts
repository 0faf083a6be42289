// Regions that scroll can be scrolled with the keyboard: where a region has no control of its own, it receives the focus.
const CONTROLS = "a[href], button, input, select, textarea, [tabindex]";

export function reachScrollable(root: HTMLElement): () => void {
  const update = (): void => {
    for (const one of root.querySelectorAll<HTMLElement>(".scroll:not([tabindex])")) {
      const scrolls = one.scrollWidth > one.clientWidth || one.scrollHeight > one.clientHeight;
      if (!scrolls || one.querySelector(CONTROLS)) continue;
      one.tabIndex = 0;
      one.setAttribute("role", "group");
      if (!one.hasAttribute("aria-label")) one.setAttribute("aria-label", one.closest("[aria-label]")?.getAttribute("aria-label") ?? "Scrollable table");
    }
  };
  const observer = new MutationObserver(() => requestAnimationFrame(update));
  observer.observe(root, { childList: true, subtree: true });
  addEventListener("resize", update);
  return () => (observer.disconnect(), removeEventListener("resize", update));
}
