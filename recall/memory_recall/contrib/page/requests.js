// What the views share: finding a part of the page, saying something, and one request of a view at a time.

export const part = (id) => document.getElementById(id);
export const say = (text) => { part("said").textContent = text; };
export const isBusy = (view) => view.getAttribute("aria-busy") === "true";

// Sends a request of a view and returns the answer, or says what went wrong and returns null. A view waits for one answer
// at a time, so that a key that is held down is answered once. `given` makes it a POST request.
export async function call(view, path, given) {
  if (isBusy(view)) return null;
  view.setAttribute("aria-busy", "true");
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
    say("The server does not answer. Start the command again; what was judged is stored.");
  } finally {
    view.removeAttribute("aria-busy");
  }
  return null;
}
