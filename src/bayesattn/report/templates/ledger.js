// The table sorts and filters; links open what they lead to.
const table = document.querySelector("table");
const body = table.tBodies[0];
const find = document.getElementById("find");
const shownCount = document.getElementById("shown");
const chosen = new Set();

const filter = () => {
  const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const row of body.rows) {
    const said = row.textContent.toLowerCase();
    const fits = words.every((word) => said.includes(word)) && (!chosen.size || chosen.has(row.dataset.result));
    row.hidden = !fits;
    shown += fits;
  }
  shownCount.textContent = `${shown} of ${body.rows.length} claims`;
};
find.addEventListener("input", filter);

for (const button of document.querySelectorAll("button[data-filter]")) {
  button.addEventListener("click", () => {
    const name = button.dataset.filter;
    chosen.has(name) ? chosen.delete(name) : chosen.add(name);
    button.setAttribute("aria-pressed", chosen.has(name));
    filter();
  });
}

const key = (row, column) => {
  const cell = row.cells[column];
  return cell.dataset.sort ?? cell.textContent.trim();
};
for (const button of document.querySelectorAll("button[data-sort]")) {
  button.addEventListener("click", () => {
    const header = button.closest("th");
    const column = header.cellIndex;
    const down = header.getAttribute("aria-sort") === "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", down ? "descending" : "ascending");
    const sorted = [...body.rows].sort((a, b) => key(a, column).localeCompare(key(b, column), "en", { numeric: true }));
    body.append(...(down ? sorted.reverse() : sorted));
  });
}

const openTarget = () => {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target instanceof HTMLDetailsElement) target.open = true;
};
addEventListener("hashchange", openTarget);
addEventListener("beforeprint", () => {
  for (const claim of document.querySelectorAll("details")) claim.open = true;
});
openTarget();
filter();
