const odd = document.getElementById("odd");
const find = document.getElementById("find");

function show() {
  const words = find.value.toLowerCase().split(/\s+/);
  for (const row of document.querySelectorAll("details")) {
    const found = words.every((word) => row.dataset.text.includes(word));
    row.hidden = !found || (odd.checked && row.dataset.odd === "0");
  }
  for (const part of document.querySelectorAll("section")) {
    part.hidden = !part.querySelector("details:not([hidden])");
  }
}

function unfold() {
  const row = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (row && row.tagName === "DETAILS") row.open = true;
}

odd.addEventListener("input", show);
find.addEventListener("input", show);
addEventListener("hashchange", unfold);
unfold();
