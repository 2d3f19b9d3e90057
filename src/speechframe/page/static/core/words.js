// Find words by time, and write numbers as text. These functions need no page.

/** Return the index of the last word that starts at or before a time. */
const begun = (words, ms) => words.findLastIndex(([, start]) => start <= ms);

/**
 * Return the index of the word at a time, or -1 in gaps, before the first word and after the last.
 * A word is [text, start_ms, end_ms], and lasts while start <= time < end.
 */
export function wordAt(words, ms) {
  const place = begun(words, ms);
  return ms < words[place]?.[2] ? place : -1;
}

/** Return the index of the word that is `step` words after a time. It is -1 if there are no words. */
export function wordBeside(words, ms, step) {
  return Math.min(words.length - 1, Math.max(0, begun(words, ms) + step));
}

/** Return a time as text, such as "0:03.2", "2:05" or "1:02:05". Tenths belong to lengths below a minute. */
export function inWords(seconds, length = seconds) {
  const tenths = Math.floor(seconds * 10 + 1e-6);
  const [whole, two] = [Math.floor(tenths / 10), (number) => String(number).padStart(2, "0")];
  const [hours, minutes] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60];
  return `${hours ? `${hours}:${two(minutes)}` : minutes}:${two(whole % 60)}${length < 60 ? `.${tenths % 10}` : ""}`;
}

export function counted(number, noun = "") {
  const text = number.toLocaleString("en-US");
  return noun ? `${text} ${noun}${number === 1 ? "" : "s"}` : text;
}

/** Return a text in which the values by name replace parts such as {name}. */
export const fillIn = (text, values = {}) => text.replace(/\{(\w+)\}/g, (_, name) => values[name] ?? "");

/** Return a function that finds a text by its name, and fills in values. */
export const textsBy = (texts) => (name, values) => fillIn(texts[name], values);
