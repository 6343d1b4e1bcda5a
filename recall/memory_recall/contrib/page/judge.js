// Shows one task at a time and sends each answer to the server, which stores it before it answers with the next task.

import {call, isBusy, part, say} from "./requests.js";

let current = null;  // as the server has described it

// Whoever moves among the views by the arrow keys keeps the focus there.
function focusText() {
  if (document.activeElement.closest('[role="tab"]') === null) part("text").focus();
}

const display = (id, shown) => { part(id).hidden = !shown; };

function offer(grades) {
  for (const [grade, meaning] of Object.entries(grades)) {
    const button = document.createElement("button");
    const key = document.createElement("kbd");
    key.textContent = grade;
    button.append(key, meaning);
    button.addEventListener("click", () => { answer({kind: "grade", grade: Number(grade)}); button.blur(); });
    part("grades").append(button);
  }
}

function draw(found) {
  if (found === null) return;
  if (current === null) offer(found.grades);
  current = found;
  const {task, progress} = current;
  const writing = task !== null && task.question === null;
  const judging = task !== null && task.question !== null;
  display("judging", judging);
  display("grades", judging);
  display("writing", writing);
  display("write", writing);
  display("memory", task !== null);
  display("done", task === null);
  display("commands", !writing);
  part("progress").textContent = writing
    ? `Memory ${progress.written + 1} of ${progress.to_write}`
    : judging
      ? `Question ${progress.questions + 1} of ${progress.to_judge}, memory ${progress.memories + 1} of ${progress.pooled}`
      : `${progress.to_judge} of ${progress.to_judge} questions`;
  part("bar").value = writing
    ? progress.written / progress.to_write
    : (progress.questions + (progress.pooled ? progress.memories / progress.pooled : 0)) / (progress.to_judge || 1);
  part("judge").dataset.task = task?.id ?? "";
  if (task === null) return;
  part("question").textContent = task.question ?? "";
  part("stratum").textContent = task.stratum ?? "";
  part("content").textContent = task.memory.content;
  window.scrollTo(0, 0);
  part("about").textContent = [task.memory.created, task.memory.category, task.memory.tags].filter(Boolean).join(" · ");
  part("text").value = "";
  if (writing) focusText();
  else part("text").blur();
}

const answer = async (given) => draw(await call(part("judge"), "answer", {task: current?.task?.id ?? "", ...given}));

async function write() {
  const found = await call(part("judge"), "export", {});
  if (found === null) return;
  const kappa = found.kappa.grades === null ? "not known yet" : found.kappa.grades.toFixed(2);
  say([
    `${found.questions} questions written to ${found.file}`,
    `Cohen's kappa of ${found.kappa.judged_twice} memories judged twice: ${kappa}`,
    ...(found.withdrawn ? [`${found.withdrawn} questions removed, whose memories may not be shown or whose user the table cannot have`] : []),
    ...found.warnings,
  ].join("\n"));
}

function onKey(event) {
  const view = part("judge");
  if (current === null || view === null || view.hidden || isBusy(view)) return;
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
  const writing = current.task !== null && current.task.question === null;
  const key = event.key;
  if (writing) {
    if (key === "Escape") answer({kind: "leave_out"});
    else if (key === "Backspace" && part("text").value === "" && current.can_undo) answer({kind: "undo"});
    else return;
  } else if (current.task !== null && key in current.grades) answer({kind: "grade", grade: Number(key)});
  else if ((key === "u" || key === "Backspace") && current.can_undo) answer({kind: "undo"});
  else if (key === "x" && current.task !== null) answer({kind: "leave_out"});
  else if (key === "e") write();
  else if (key === "q") part("finish").click();
  else return;
  event.preventDefault();
}

export function begin() {
  document.addEventListener("keydown", onKey);
  part("write").addEventListener("submit", (event) => {
    event.preventDefault();
    answer({kind: "write", text: part("text").value});
  });
}

export async function show() {
  if (current === null) draw(await call(part("judge"), "screen"));
  else if (!part("write").hidden) focusText();
}
