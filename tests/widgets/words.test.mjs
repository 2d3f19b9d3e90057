// Run by node: see test_scripts.py.
import assert from "node:assert/strict";
import test from "node:test";

import { counted, inWords, wordAt, wordBeside } from "../../src/speechframe/page/static/core/words.js";
import { clippedPlaces, extremes, view } from "../../src/speechframe/page/static/core/wave.js";

const WORDS = [["one", 100, 300], ["two", 300, 500], ["three", 700, 900]];

test("a word is heard from its start up to its end, and never in a gap", () => {
  const heard = (ms) => WORDS[wordAt(WORDS, ms)]?.[0];
  assert.equal(heard(0), undefined);
  assert.equal(heard(99.9), undefined);
  assert.equal(heard(100), "one");
  assert.equal(heard(299.9), "one");
  assert.equal(heard(300), "two");
  assert.equal(heard(500), undefined);
  assert.equal(heard(699), undefined);
  assert.equal(heard(899), "three");
  assert.equal(heard(900), undefined);
  assert.equal(wordAt([], 5), -1);
});

test("a thousand words are found as a plain look through them finds them", () => {
  const many = Array.from({ length: 1000 }, (_, k) => [`w${k}`, k * 10, k * 10 + 7]);
  for (let ms = -5; ms < 10_020; ms += 3) {
    assert.equal(wordAt(many, ms), many.findIndex(([, start, end]) => start <= ms && ms < end));
  }
});

test("arrows go to the next word and the one before, and stay inside", () => {
  assert.equal(wordBeside(WORDS, 0, 1), 0);
  assert.equal(wordBeside(WORDS, 100, 1), 1);
  assert.equal(wordBeside(WORDS, 600, 1), 2);
  assert.equal(wordBeside(WORDS, 600, -1), 0);
  assert.equal(wordBeside(WORDS, 2000, 1), 2);
  assert.equal(wordBeside(WORDS, 0, -1), 0);
  assert.equal(wordBeside([], 0, 1), -1);
});

test("lengths and numbers are written as people read them", () => {
  assert.equal(inWords(3.254), "0:03.2");
  assert.equal(inWords(125.9), "2:05");
  assert.equal(inWords(1295.65, 1800), "21:35");
  assert.equal(inWords(1.25, 1800), "0:01");
  assert.equal(inWords(59.97), "0:59.9");
  assert.equal(inWords(3725), "1:02:05");
  assert.equal(counted(12345, "clip"), "12,345 clips");
  assert.equal(counted(1, "clip"), "1 clip");
});

test("the outline of a stretch is its lowest and highest value", () => {
  const outline = new DataView(new Int8Array([0, 10, -20, 5, -127, 127, -1, 1]).buffer);
  assert.deepEqual(extremes(outline, 0, 0.25), [0, 10 / 127, false]);
  assert.deepEqual(extremes(outline, 0, 0.5), [-20 / 127, 10 / 127, false]);
  assert.deepEqual(extremes(outline, 0, 1), [-1, 1, false]);
  assert.deepEqual(extremes(null, 0, 1), [0, 0, false]);
  const clipped = new DataView(new Int8Array([-128, -128, -128, -128, -5, 5, -128, -128]).buffer);
  assert.deepEqual(extremes(clipped, 0, 1), [-1, 1, true]);
  assert.equal(clippedPlaces(clipped), 2);
  assert.equal(clippedPlaces(outline), 0);
});

test("an outline comes as a buffer or as Base64, and nothing is nothing", () => {
  assert.equal(view("AQI=").getInt8(1), 2);
  assert.equal(view(new Uint8Array([1, 2])).getInt8(1), 2);
  assert.equal(view(""), null);
  assert.equal(view(null), null);
});
