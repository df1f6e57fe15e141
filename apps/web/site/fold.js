"use strict";
// Opens the list beside a page's content if the window is wide.

const wide = matchMedia("(min-width: 901px)");
function fold() {
  for (const list of document.querySelectorAll(".side-list")) list.open = wide.matches;
}
wide.addEventListener("change", fold);
fold();
