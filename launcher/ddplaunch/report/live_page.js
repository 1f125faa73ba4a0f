
"use strict";
const board = document.getElementById("board");
const lost = document.getElementById("lost");
let last = "";
async function look() {
  let text = "";
  try {
    const answer = await fetch("board", { cache: "no-store" });
    text = answer.ok ? await answer.text() : "";
  } catch {}
  lost.hidden = text !== "";
  if (text !== "" && text !== last) board.innerHTML = last = text;
  if (!document.querySelector("[data-ended]")) setTimeout(look, text === "" ? 5000 : 1000);
}
if (!document.querySelector("[data-ended]")) setTimeout(look, 1000);
