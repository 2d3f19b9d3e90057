// Paint the waveform of a clip from its outline. An outline has pairs of int8, the lowest and the highest value of
// each part of the clip.

/** Return a buffer or a Base64 text as a DataView, or null if it is empty. */
export function view(data) {
  if (data == null || data === "") return null;
  if (data instanceof DataView) return data.byteLength ? data : null;
  if (typeof data === "string") {
    const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
    return bytes.length ? new DataView(bytes.buffer) : null;
  }
  return new DataView(data.buffer ?? data, data.byteOffset ?? 0, data.byteLength);
}

/** Return the lowest and highest value between two positions. Positions are 0 to 1, and values are -1 to 1. */
export function extremes(outline, from, to) {
  const pairs = outline ? outline.byteLength / 2 : 0;
  if (!pairs) return [0, 0];
  const first = Math.min(pairs - 1, Math.floor(from * pairs));
  const last = Math.max(first, Math.min(pairs, Math.ceil(to * pairs)) - 1);
  let low = 127;
  let high = -127;
  for (let k = first; k <= last; k++) {
    low = Math.min(low, outline.getInt8(2 * k));
    high = Math.max(high, outline.getInt8(2 * k + 1));
  }
  return [low / 127, high / 127];
}

/** Paint the waveform. `played` is the share that was played, from 0 to 1, and has the accent colour. */
export function paint(canvas, outline, played) {
  const width = canvas.clientWidth;
  const height = canvas.clientHeight;
  if (!width || !height) return;
  const dense = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * dense);
  canvas.height = Math.round(height * dense);
  // A canvas cannot use colours such as "light-dark(...)", so computed colours of its own style are used.
  const style = getComputedStyle(canvas);
  const pen = canvas.getContext("2d");
  pen.scale(dense, dense);
  for (let x = 0; x < width; x++) {
    const [low, high] = extremes(outline, x / width, (x + 1) / width);
    pen.fillStyle = x / width < played ? style.outlineColor : style.color;
    const top = ((1 - high) * height) / 2;
    pen.fillRect(x, top, 1, Math.max(1, ((high - low) * height) / 2));
  }
}
