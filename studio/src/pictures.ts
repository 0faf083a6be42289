// Images given as data URIs. They are decoded here and drawn on a canvas: the page loads no image by its address.

const MAX_KEPT = 60;
const LARGEST = 90_000; // characters of a data URI that are sent as they are
const SIDE = 320; // pixels of the longer side of an image that is reduced
const kept = new Map<string, Promise<ImageBitmap | null>>();

/** The image of a data URI; null if the browser cannot decode it. */
export function decode(uri: string): Promise<ImageBitmap | null> {
  let found = kept.get(uri);
  if (!found) {
    found = bytesOf(uri).then((bytes) => createImageBitmap(new Blob([bytes]))).catch(() => null);
    kept.set(uri, found);
    if (kept.size > MAX_KEPT) kept.delete(kept.keys().next().value!);
  }
  return found;
}

async function bytesOf(uri: string): Promise<Uint8Array<ArrayBuffer>> {
  return Uint8Array.from(atob(uri.slice(uri.indexOf(",") + 1)), (one) => one.charCodeAt(0));
}

/** Whether an image is dark on average. */
export function isDark(bitmap: ImageBitmap): boolean {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [8, 8];
  const draw = canvas.getContext("2d")!;
  draw.drawImage(bitmap, 0, 0, 8, 8);
  const values = draw.getImageData(0, 0, 8, 8).data.filter((_, at) => at % 4 < 3);
  return values.reduce((sum, one) => sum + one, 0) / values.length < 128;
}

const readUri = (file: Blob): Promise<string> =>
  new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result as string);
    reader.onerror = () => reject(new Error("the file cannot be read"));
    reader.readAsDataURL(file);
  });

/** A file as a data URI. A large image is reduced, because the server limits inputs; what is no image is left as it is. */
export async function pictureOf(file: File): Promise<{ text: string; note: string }> {
  const uri = await readUri(file);
  const bitmap = uri.length > LARGEST ? await createImageBitmap(file).catch(() => null) : null;
  if (!bitmap) return { text: uri, note: "" };
  const scale = Math.min(1, SIDE / Math.max(bitmap.width, bitmap.height));
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [Math.max(1, Math.round(bitmap.width * scale)), Math.max(1, Math.round(bitmap.height * scale))];
  canvas.getContext("2d")!.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  return { text: canvas.toDataURL("image/jpeg", 0.9), note: `Reduced from ${bitmap.width} × ${bitmap.height} to ${canvas.width} × ${canvas.height} pixels before it was sent.` };
}
