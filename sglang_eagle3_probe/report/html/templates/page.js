// Nothing here is needed to read the page. A link to a finding opens it in browsers that do not do
// so by themselves, and what is folded up is printed too.
"use strict";
function reveal() {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const folded = target && target.closest("details");
  if (folded && !folded.open) {
    folded.open = true;
    target.scrollIntoView();
  }
}
const opened = [];
addEventListener("hashchange", reveal);
addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details:not([open])")) {
    details.open = true;
    opened.push(details);
  }
});
addEventListener("afterprint", () => {
  while (opened.length) opened.pop().open = false;
});
reveal();
