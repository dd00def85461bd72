// The tables sort and filter; links open what they lead to.
const tables = [...document.querySelectorAll("table.ledger")];
const find = document.getElementById("find");
const shownCount = document.getElementById("shown");
const chosen = new Set();

const filter = () => {
  const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0, all = 0;
  for (const row of tables.flatMap((table) => [...table.tBodies[0].rows])) {
    const said = row.textContent.toLowerCase();
    const results = row.dataset.result.split(" ");
    const fits = words.every((word) => said.includes(word)) && (!chosen.size || results.some((own) => chosen.has(own)));
    row.hidden = !fits;
    shown += fits;
    all += 1;
  }
  shownCount.textContent = `${shown} of ${all} rows`;
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

for (const button of document.querySelectorAll("button[data-sort]")) {
  button.addEventListener("click", () => {
    const header = button.closest("th");
    const table = header.closest("table");
    const column = header.cellIndex;
    const key = (row) => row.cells[column].textContent.trim();
    const down = header.getAttribute("aria-sort") === "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", down ? "descending" : "ascending");
    const sorted = [...table.tBodies[0].rows].sort((a, b) => key(a).localeCompare(key(b), "en", { numeric: true }));
    table.tBodies[0].append(...(down ? sorted.reverse() : sorted));
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
