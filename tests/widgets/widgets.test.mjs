// Run by node: see test_scripts.py.
import assert from "node:assert/strict";
import test from "node:test";

import { fillIn } from "../../src/speechframe/page/static/core/words.js";
import { heardIn, passing, stylesOf } from "../../src/speechframe/page/static/gallery.js";

const voice = (name, gender, locale, locales) => ({ id: `${locale}-${name}`, name, gender, locale, description: "", locales });
const ANN = voice("Ann", "Female", "en-US", { "en-US": ["Calm", "Angry"], "fr-FR": ["Calm"] });
const BEA = voice("Bea", "Female", "fr-FR", { "fr-FR": ["Sad"] });
const CAL = voice("Cal", "Male", "en-GB", { "en-GB": [] });
const ALL = [ANN, BEA, CAL];
const NONE = { query: "", gender: "", engine: "", locale: "", style: "" };

const names = (found) => found.map(({ name }) => name).join(" ");

test("voices pass every filter, whose own locale it is first", () => {
  assert.equal(names(passing(ALL, NONE)), "Ann Bea Cal");
  assert.equal(names(passing(ALL, { ...NONE, query: " BEA fr-fr" })), "Bea");
  assert.equal(names(passing(ALL, { ...NONE, gender: "Male" })), "Cal");
  assert.equal(names(passing(ALL, { ...NONE, query: "male" })), "Cal", "a word is found by its beginning");
  assert.equal(names(passing([ANN, { ...CAL, kind: "neural" }, BEA], { ...NONE, locale: "" })), "Cal Ann Bea");
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

test("values replace their names in a text of a page", () => {
  assert.equal(fillIn("{done} of {total}{none}", { done: 0, total: "1.200" }), "0 of 1.200");
});
