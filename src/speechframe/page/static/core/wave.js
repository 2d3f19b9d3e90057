// Paint the waveform of a clip from its outline. An outline has pairs of int8, the lowest and the highest value of
// each part of the clip. Both are -128 if the audio of the part is clipped.

const CLIPPED = -128;
const MIN_PEAK = 0.02; // waveforms of clips below this peak are not enlarged further

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

/**
 * Return the lowest and highest value between two positions, and whether there is clipped audio. Positions are 0 to
 * 1, and values are -1 to 1.
 */
export function extremes(outline, from, to) {
  const pairs = outline ? outline.byteLength / 2 : 0;
  if (!pairs) return [0, 0, false];
  const first = Math.min(pairs - 1, Math.floor(from * pairs));
  const last = Math.max(first, Math.min(pairs, Math.ceil(to * pairs)) - 1);
  let low = 127;
  let high = -127;
  for (let k = first; k <= last; k++) {
    low = Math.min(low, outline.getInt8(2 * k));
    high = Math.max(high, outline.getInt8(2 * k + 1));
  }
  return low === CLIPPED ? [-1, 1, true] : [low / 127, high / 127, false];
}

/** Return the number of places with clipped audio. */
export function clippedPlaces(outline) {
  let places = 0;
  for (let k = 0; k < (outline?.byteLength ?? 0); k += 2) {
    places += outline.getInt8(k) === CLIPPED && (!k || outline.getInt8(k - 2) !== CLIPPED);
  }
  return places;
}

/** Return the factor by which the waveform of a clip is enlarged, so that it has the full height. */
export function scaleOf(outline) {
  const [low, high] = extremes(outline, 0, 1);
  return 1 / Math.max(-low, high, MIN_PEAK);
}

/**
 * Paint the waveform between two positions of the clip. The part before the position `played` has the accent colour,
 * clipped audio has the colour of errors, and `range` (two positions or null) is shaded.
 */
export function paint(canvas, outline, { from = 0, to = 1, played, scale = 1, range = null }) {
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
  const at = (x) => from + (x / width) * (to - from);
  if (range) {
    const [left, right] = range.map((place) => ((place - from) / (to - from)) * width);
    [pen.globalAlpha, pen.fillStyle] = [0.25, style.outlineColor];
    pen.fillRect(left, 0, Math.max(1, right - left), height);
    pen.globalAlpha = 1;
  }
  for (let x = 0; x < width; x++) {
    const [low, high, isClipped] = extremes(outline, at(x), at(x + 1));
    pen.fillStyle = isClipped ? style.caretColor : at(x) < played ? style.outlineColor : style.color;
    const top = ((1 - Math.min(1, high * scale)) * height) / 2;
    pen.fillRect(x, top, 1, Math.max(1, ((Math.min(1, high * scale) - Math.max(-1, low * scale)) * height) / 2));
  }
}
