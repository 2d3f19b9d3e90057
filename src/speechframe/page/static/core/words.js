// Which word is heard when, and lengths in words; no page is needed for it.

/**
 * The place of the word that is heard at a time, -1 in gaps, before the first word and after the last.
 * A word is [text, start_ms, end_ms] and is heard while start <= time < end.
 */
export function wordAt(words, ms) {
  let low = 0;
  let high = words.length - 1;
  while (low <= high) {
    const middle = (low + high) >> 1;
    if (words[middle][1] > ms) high = middle - 1;
    else if (words[middle][2] <= ms) low = middle + 1;
    else return middle;
  }
  return -1;
}

/** The place of the word one step from a time, for the arrow keys; -1 where there are no words. */
export function wordBeside(words, ms, step) {
  if (!words.length) return -1;
  let passed = -1;
  while (passed + 1 < words.length && words[passed + 1][1] <= ms) passed += 1;
  const next = step > 0 ? passed + 1 : passed - 1;
  return Math.min(words.length - 1, Math.max(0, next));
}

/** Seconds as people read them: "3.25 s", "2:05 min". */
export function inWords(seconds) {
  if (seconds < 60) return `${seconds.toFixed(2)} s`;
  const whole = Math.floor(seconds);
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")} min`;
}

/** A number with separators, as English writes it. */
export function counted(number, noun = "") {
  const text = number.toLocaleString("en-US");
  return noun ? `${text} ${noun}${number === 1 ? "" : "s"}` : text;
}
