// Which word is heard when, and lengths in words; no page is needed for it.

/** The place of the last word that has begun at a time. */
const begun = (words, ms) => words.findLastIndex(([, start]) => start <= ms);

/**
 * The place of the word that is heard at a time, -1 in gaps, before the first word and after the last.
 * A word is [text, start_ms, end_ms] and is heard while start <= time < end.
 */
export function wordAt(words, ms) {
  const place = begun(words, ms);
  return ms < words[place]?.[2] ? place : -1;
}

/** The place of the word one step from a time, for the arrow keys; -1 where there are no words. */
export function wordBeside(words, ms, step) {
  return Math.min(words.length - 1, Math.max(0, begun(words, ms) + step));
}

/** Seconds as people read them: "3.25 s", "2:05 min". */
export function inWords(seconds) {
  if (seconds < 60) return `${seconds.toFixed(2)} s`;
  const whole = Math.floor(seconds);
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")} min`;
}

export function counted(number, noun = "") {
  const text = number.toLocaleString("en-US");
  return noun ? `${text} ${noun}${number === 1 ? "" : "s"}` : text;
}
