// Shows one view at a time, and ends the server. Texts are set as text, never as markup, and nothing is requested from
// any other server.

import * as index from "./index.js";
import * as judge from "./judge.js";
import * as recall from "./recall.js";
import {call, part, say} from "./requests.js";

const views = {recall, judge, index};
const tabs = () => [...document.querySelectorAll('[role="tab"]:not([hidden])')];

function choose(tab) {
  for (const one of tabs()) {
    const chosen = one === tab;
    one.setAttribute("aria-selected", String(chosen));
    one.tabIndex = chosen ? 0 : -1;
    part(one.getAttribute("aria-controls")).hidden = !chosen;
  }
  say("");
  views[tab.getAttribute("aria-controls")].show();
}

function onTabKey(event) {
  const all = tabs();
  const at = all.indexOf(event.target);
  const next = {ArrowRight: at + 1, ArrowLeft: at - 1 + all.length, Home: 0, End: all.length - 1}[event.key];
  if (next === undefined || at < 0) return;
  event.preventDefault();
  const tab = all[next % all.length];
  choose(tab);
  tab.focus();
}

async function end() {
  if (await call(document.body, "finish", {}) === null) return;
  document.body.textContent = "This page has ended. What was judged is stored.";
}

async function begin() {
  const found = await call(document.body, "begin");
  if (found === null) return;
  part("tab-judge").hidden = !found.judging;
  for (const tab of tabs()) {
    tab.addEventListener("click", () => { tab.blur(); choose(tab); });
  }
  part("tabs").addEventListener("keydown", onTabKey);
  part("finish").addEventListener("click", end);
  recall.begin(found);
  judge.begin();
  index.begin();
  choose(part(found.judging ? "tab-judge" : "tab-recall"));
}

begin();
