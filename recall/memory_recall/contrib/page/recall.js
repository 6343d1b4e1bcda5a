// Tries a recall. It is asked once without a least relevance; the level then decides here what is held back.

import {call, isBusy, part} from "./requests.js";

const WORDS_ALONE = "WordsAlone";
let levels = [];  // of names, as the server has them
let level = null;  // the chosen one; a number of the slider is a level without a name
let memories = [];  // each with its element, best first
let wordsAlone = false;  // whether words alone measured the relevance of the last recall

const two = (number) => number.toFixed(2);
const least = (memory) => memory.by_words ? level.by_words : level.by_meaning;
const placed = (named) => wordsAlone ? named.by_words : named.by_meaning;  // on the slider
const suffices = (memory) => memory.relevance === null || memory.relevance >= least(memory);

function spoken({name, by_meaning, by_words}) {
  if (by_meaning === 0) return "everything";
  const by_words_alone = by_words === by_meaning ? "" : ` (${two(by_words)} by words alone)`;
  return `${name === null ? "" : `${name}: `}${two(by_meaning)} or more${by_words_alone}`;
}

function element(kind, name, text) {
  const made = document.createElement(kind);
  made.className = name;
  made.textContent = text;
  return made;
}

function scored({leg, rank, score}) {
  const place = rank === null ? "not found" : `rank ${rank}`;
  return `${leg}: ${place}${score === null ? "" : `, score ${score.toFixed(3)}`}`;
}

function drawn(memory) {
  const item = document.createElement("li");
  item.dataset.memory = memory.id;
  const legs = memory.legs.map(scored);
  if (memory.graph_score !== null) legs.push(`graph: score ${memory.graph_score.toFixed(3)}`);
  const facts = [
    `place ${memory.place}`,
    `score ${memory.score.toFixed(4)}`,
    memory.relevance === null ? "relevance not known" : `relevance ${two(memory.relevance)}`,
  ];
  item.append(element("p", "content", memory.content), element("p", "about", memory.about));
  item.append(element("p", "facts", facts.join(" · ")), element("p", "facts", legs.join(" · ")));
  item.append(element("p", "why", ""));
  return item;
}

function hold() {
  let held = 0;
  for (const {memory, item} of memories) {
    const shown = suffices(memory);
    held += shown ? 0 : 1;
    part(shown ? "recalled" : "held").append(item);
    item.querySelector(".why").textContent = shown
      ? ""
      : `Held back, since its relevance ${memory.relevance.toFixed(3)} is below ${two(least(memory))}. ${memory.measured}`;
  }
  part("held-back").hidden = held === 0;
  part("counted").textContent = memories.length === 0
    ? "Nothing was recalled."
    : `${memories.length - held} shown, ${held} held back.`;
}

function demand(chosen) {
  level = chosen;
  part("level").setAttribute("aria-valuetext", spoken(level));
  part("demanded").textContent = spoken(level);
  for (const button of part("levels").children) {
    button.setAttribute("aria-pressed", String(button.dataset.level === level.name));
  }
  if (memories.length > 0) hold();
}

// Marks the named levels on the slider, and moves it to the chosen one.
function mark() {
  part("marks").replaceChildren(...levels.map((named) => new Option(named.name, placed(named))));
  if (level.name !== null) part("level").value = placed(level);
}

function draw(question, found) {
  memories = found.memories.map((memory) => ({memory, item: drawn(memory)}));
  part("recalled").replaceChildren();
  part("held").replaceChildren();
  part("asked").textContent = question;
  part("notes").textContent = found.notes.join("\n");
  part("times").textContent = Object.entries(found.milliseconds)
    .map(([name, milliseconds]) => `${name} ${milliseconds.toFixed(1)} ms`).join(" · ");
  for (const control of [part("level"), ...part("levels").children]) control.disabled = !found.relevance_known;
  wordsAlone = found.basis === WORDS_ALONE;
  mark();
  part("found").hidden = false;
  hold();
}

async function ask(event) {
  event.preventDefault();
  if (isBusy(part("recall"))) return;
  const text = part("query").value;
  const found = await call(part("recall"), "recall", {text});
  if (found === null) part("found").hidden = true;
  else draw(text, found);
}

function choose(named) {
  demand(named);
  mark();
}

export function begin(found) {
  levels = found.levels;
  part("whose").textContent = found.whose;
  for (const named of levels) {
    const button = element("button", "", named.name);
    button.type = "button";
    button.dataset.level = named.name;
    button.addEventListener("click", () => choose(named));
    part("levels").append(button);
  }
  part("level").addEventListener("input", () => {
    const number = Number(part("level").value);
    demand({name: number === 0 ? levels[0].name : null, by_meaning: number, by_words: number});
  });
  part("ask").addEventListener("submit", ask);
  part("recall").addEventListener("keydown", (event) => {
    if (event.key === "Escape") show();
  });
  choose(levels[0]);
}

// Returns to the question, which whatever is typed replaces.
export function show() {
  part("query").focus();
  part("query").select();
}
