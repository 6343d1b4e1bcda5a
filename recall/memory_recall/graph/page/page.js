// Draws the picture that the server has computed, and asks for another one when a concept is chosen.
// Texts are set as text, never as markup, and nothing is requested from any other server.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const HEIGHTS = {middle: 44, memory: 34};
let shown = null;  // the picture, as the server has described it
let groups = [];  // what is drawn of each of its nodes
let paths = [];  // and of each of its lines
let chosen = null;  // the number of the node whose memory is beside the picture
const trail = [];  // the concepts that were in the middle before

function made(name, attributes, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

function fit(element, text, width) {
  element.textContent = text;
  const letters = Array.from(text);
  while (letters.length > 1 && element.getComputedTextLength() > width) {
    letters.pop();
    element.textContent = `${letters.join("").trimEnd()}…`;
  }
}

function nameOf(node) {
  if (node.kind === "memory") return `Memory ${node.name}: ${node.text}`;
  if (node.kind === "concept") return `Concept ${node.name}, in ${node.memories} of the memories`;
  return `${node.name}, in the middle`;
}

function drawnLine(line) {
  const half = (line.x1 + line.x2) / 2;
  return made("path", {
    d: `M${line.x1} ${line.y1}C${half} ${line.y1} ${half} ${line.y2} ${line.x2} ${line.y2}`,
    class: line.end === 0 ? "spoke" : "link", "aria-hidden": "true",
  });
}

function drawnNode(node, number) {
  const group = made("g", {
    class: `${node.kind} ${node.side < 0 ? "left" : "right"}`, transform: `translate(${node.x} ${node.y})`,
    role: node.kind === "middle" ? "img" : "button", tabindex: node.kind === "middle" ? -1 : 0,
    "aria-label": nameOf(node),
  });
  const tip = made("title", {});
  tip.textContent = nameOf(node);
  group.append(tip);
  const height = HEIGHTS[node.kind];
  if (height === undefined) group.append(made("circle", {r: 4 + Math.min(node.memories, 16) / 4}));
  else group.append(made("rect", {x: -node.width / 2, y: -height / 2, width: node.width, height, rx: height / 2}));
  group.append(made("text", {x: height === undefined ? node.side * 14 : 0}));
  if (node.kind === "middle") return group;
  for (const event of ["mouseenter", "focus"]) group.addEventListener(event, () => trace(number));
  for (const event of ["mouseleave", "blur"]) group.addEventListener(event, () => trace(chosen));
  const choose = () => node.kind === "memory" ? read(number) : move(node.name);
  group.addEventListener("click", choose);
  group.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    choose();
  });
  return group;
}

// Brings out what is linked with a node, and everything again if none is given.
function trace(number) {
  part("picture").classList.toggle("traced", number !== null);
  const lit = new Set([number]);
  shown.lines.forEach((line, place) => {
    const linked = line.start === number || line.end === number;
    paths[place].classList.toggle("lit", linked);
    if (linked) lit.add(line.start).add(line.end);
  });
  groups.forEach((group, place) => group.classList.toggle("lit", lit.has(place)));
}

function draw(found) {
  shown = found;
  chosen = null;
  const picture = part("picture");
  picture.removeAttribute("hidden");
  picture.setAttribute("viewBox", `0 0 ${found.width} ${found.height}`);
  paths = found.lines.map(drawnLine);
  groups = found.nodes.map(drawnNode);
  picture.replaceChildren(...paths, ...groups);
  found.nodes.forEach((node, number) => {
    fit(groups[number].lastElementChild, node.text, node.kind === "concept" ? node.width : node.width - 22);
  });
  trace(null);
  part("told").textContent = found.told;
  part("concept").value = found.nodes[0].name;
  beside("No memory chosen", "Choose a memory to read it here, or a concept to move it to the middle.", []);
}

function beside(title, content, concepts) {
  part("title").textContent = title;
  part("content").textContent = content;
  part("concepts").replaceChildren(...concepts.map((concept) => {
    const button = document.createElement("button");
    button.textContent = concept;
    button.addEventListener("click", () => move(concept));
    return button;
  }));
}

// Shows another concept; true if there is one of this name.
async function look(concept) {
  const found = await call("look", {concept});
  if (found !== null) draw(found);
  return found !== null;
}

// As `look`, and lets `back` return.
async function move(concept) {
  const before = shown?.nodes[0].name;
  if (!await look(concept)) return false;
  if (before !== undefined && before !== shown.nodes[0].name) trail.push(before);
  part("back").disabled = trail.length === 0;
  groups[0].focus({preventScroll: true});
  return true;
}

// As `move`, but what cannot be found stays in the field, where the next letter replaces it.
async function search(concept) {
  if (await move(concept)) return;
  part("concept").value = concept;
  part("concept").select();
}

async function back() {
  if (!await look(trail.at(-1))) return;
  trail.pop();
  part("back").disabled = trail.length === 0;
  groups[0].focus({preventScroll: true});
}

async function read(number) {
  const node = shown.nodes[number];
  const found = await call("read", {memory: Number(node.name)});
  if (found === null) return renew();
  groups.forEach((group, place) => {
    group.classList.toggle("chosen", place === number);
    if (shown.nodes[place].kind === "memory") group.setAttribute("aria-pressed", place === number);
  });
  chosen = number;
  trace(number);
  const linked = shown.lines.filter((line) => line.start === number && line.end !== 0);
  beside(`Memory ${found.id}`, found.content, linked.map((line) => shown.nodes[line.end].name));
}

// Draws the same concept again after a refusal, so that no memory stays in the picture that may no longer be shown.
async function renew() {
  const why = part("said").textContent;
  if (!await look(shown.nodes[0].name)) {
    part("picture").setAttribute("hidden", "");
    part("picture").replaceChildren();
    part("told").textContent = "";
  }
  say(why);
}

function begin(found) {
  if (found === null) return;
  part("whose").textContent = found.user === null ? "Everybody's memories" : `Memories of ${found.user}`;
  part("search").addEventListener("submit", (event) => {
    event.preventDefault();
    search(part("concept").value);
  });
  part("back").addEventListener("click", back);
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.target === part("concept") || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    part("concept").select();
  });
  if (found.concept === null) part("concept").focus();
  else search(found.concept);
}

call("begin").then(begin);
