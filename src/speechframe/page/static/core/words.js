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

/** Return a duration as text, such as "3.25 s" or "2:05 min". */
export function inWords(seconds) {
  if (seconds < 60) return `${seconds.toFixed(2)} s`;
  const whole = Math.floor(seconds);
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")} min`;
}

export function counted(number, noun = "") {
  const text = number.toLocaleString("en-US");
  return noun ? `${text} ${noun}${number === 1 ? "" : "s"}` : text;
}

/** Return a text in which the values by name replace parts such as {name}. */
export const fillIn = (text, values = {}) => text.replace(/\{(\w+)\}/g, (_, name) => values[name] ?? "");

/** Return a function that finds a text by its name, and fills in values. */
export const textsBy = (texts) => (name, values) => fillIn(texts[name], values);
