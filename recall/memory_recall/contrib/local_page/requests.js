// What the pages share: finding a part of the page, saying something, and one request to the server at a time.
"use strict";

const part = (id) => document.getElementById(id);
const say = (text) => { part("said").textContent = text; };
let busy = false;  // one request at a time, so that a key that is held down is answered once

// Sends a request and returns the answer, or says what went wrong and returns null. `given` makes it a POST request. The
// page's attribute data-unreachable is said where the server does not answer.
async function call(path, given) {
  if (busy) return null;
  busy = true;
  say("");
  try {
    const options = given === undefined ? {} : {
      method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify(given),
    };
    const answer = await fetch(path, options);
    const found = await answer.json();
    if (answer.ok) return found;
    say(`${found.message}\n${found.remedy}`);
  } catch {
    say(document.body.dataset.unreachable);
  } finally {
    busy = false;
  }
  return null;
}
