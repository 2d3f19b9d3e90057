// Run by node: see test_scripts.py.
import assert from "node:assert/strict";
import test from "node:test";

import { arranged } from "../../src/speechframe/page/static/browser.js";
import { heardIn, passing, stylesOf } from "../../src/speechframe/page/static/gallery.js";
import { listed } from "../../src/speechframe/page/static/listening/asks.js";

const voice = (name, gender, locale, locales) => ({ id: `${locale}-${name}`, name, gender, locale, description: "", locales });
const ANN = voice("Ann", "Female", "en-US", { "en-US": ["Calm", "Angry"], "fr-FR": ["Calm"] });
const BEA = voice("Bea", "Female", "fr-FR", { "fr-FR": ["Sad"] });
const CAL = voice("Cal", "Male", "en-GB", { "en-GB": [] });
const ALL = [ANN, BEA, CAL];
const NONE = { query: "", gender: "", locale: "", style: "" };

const names = (found) => found.map(({ name }) => name).join(" ");

test("voices pass every filter, whose own locale it is first", () => {
  assert.equal(names(passing(ALL, NONE)), "Ann Bea Cal");
  assert.equal(names(passing(ALL, { ...NONE, query: " BEA fr-fr" })), "Bea");
  assert.equal(names(passing(ALL, { ...NONE, gender: "Male" })), "Cal");
  assert.equal(names(passing(ALL, { ...NONE, locale: "fr" })), "Bea Ann");
  assert.equal(names(passing(ALL, { ...NONE, locale: "EN" })), "Ann Cal");
  assert.equal(names(passing(ALL, { ...NONE, locale: "en-G" })), "", "half a locale is none");
  assert.equal(names(passing(ALL, { ...NONE, locale: "fr-FR", style: "Calm" })), "Ann");
  assert.equal(names(ALL), "Ann Bea Cal", "what was given stays in its order");
});

test("styles are those of the locale that is asked for, and it is heard in one that fits", () => {
  assert.deepEqual(stylesOf(ANN, ""), ["Calm", "Angry"]);
  assert.deepEqual(stylesOf(ANN, "fr"), ["Calm"]);
  assert.equal(heardIn(ANN, "fr"), "fr-FR");
  assert.equal(heardIn(ANN, ""), "en-US");
  assert.equal(heardIn(CAL, "de"), "en-GB");
});

test("rows are filtered, searched and sorted, those without a value last both ways", () => {
  const rows = [
    { place: 0, row: "a", text: "One", status: "done", seconds: 2, verdict: "keep" },
    { place: 1, row: "b", text: "Two", status: "failed", seconds: null, verdict: null },
    { place: 2, row: "c", text: "Three", status: "done", seconds: 1, verdict: null },
  ];
  const places = (wanted) => arranged([...rows], wanted).map(({ place }) => place);
  assert.deepEqual(places({}), [0, 1, 2]);
  assert.deepEqual(places({ descending: true }), [2, 1, 0]);
  assert.deepEqual(places({ by: "seconds" }), [2, 0, 1]);
  assert.deepEqual(places({ by: "seconds", descending: true }), [0, 2, 1]);
  assert.deepEqual(places({ status: "done" }), [0, 2]);
  assert.deepEqual(places({ verdict: "none" }), [1, 2]);
  assert.deepEqual(places({ search: " tw" }), [1]);
});

test("several names are read as people say them", () => {
  assert.equal(listed([]), "");
  assert.equal(listed(["A"]), "A");
  assert.equal(listed(["A", "B", "C"]), "A, B and C");
});
