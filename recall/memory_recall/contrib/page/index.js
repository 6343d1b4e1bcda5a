// Shows the state of the index, and reads it each time when the view is shown.

import {call, part} from "./requests.js";

function drawn({name, value}) {
  const [term, description] = [document.createElement("dt"), document.createElement("dd")];
  term.textContent = name;
  description.textContent = value;
  return [term, description];
}

export const begin = () => part("read-again").addEventListener("click", show);

export async function show() {
  const found = await call(part("index"), "state");
  if (found !== null) part("facts").replaceChildren(...found.facts.flatMap(drawn));
}
