// The table of operators: rows are made as they are scrolled to, so that thousands stay quick.

const CHUNK = 120;
const PRINTED = 2000;
const table = { rows: [], columns: [], made: 0, body: null, active: 0 };

function drawTable() {
  table.columns = columnsNow();
  table.rows = sortedRows(operators.filter(passes), table.columns);
  table.body = make("tbody");
  table.made = 0;
  table.active = 0;
  byId("table").replaceChildren(make("thead", {}, headRow()), table.body);
  byId("table").setAttribute("aria-rowcount", table.rows.length + 1);
  makeRows(CHUNK);
  byId("rows").scrollTop = 0;
  countRows();
}

function headRow() {
  return make("tr", {}, ...table.columns.map((column) => {
    const isSorted = state.sort?.column === column.id;
    const order = isSorted ? (state.sort.isDown ? "descending" : "ascending") : null;
    const button = make("button", { type: "button", "data-column": column.id }, column.title);
    button.addEventListener("click", () => sortBy(column));
    const align = column.isNumber ? "right" : null;
    const about = { scope: "col", class: align, "aria-sort": order, "data-title": column.title };
    return make("th", about, button);
  }));
}

// Numbers first from the largest, words from the first.
function sortBy(column) {
  const again = state.sort?.column === column.id;
  const isDown = again ? !state.sort.isDown : Boolean(column.isNumber);
  change({ sort: { column: column.id, isDown } });
  byId("table").querySelector(`button[data-column="${column.id}"]`).focus();
}

function makeRows(upTo) {
  const end = Math.min(table.rows.length, upTo);
  const made = [];
  for (; table.made < end; table.made += 1) made.push(tableRow(table.rows[table.made], table.made));
  table.body.append(...made);
}

function tableRow(row, number) {
  const isSelected = state.selected.has(row.index);
  const cells = table.columns.map((column) =>
    tableCell(column, column.form(column.value(row), row)));
  return make("tr", {
    "data-index": row.index, "aria-rowindex": number + 2, "aria-selected": String(isSelected),
    class: isSelected ? "selected" : null, tabindex: number === table.active ? 0 : -1,
  }, ...cells);
}

// What may be cut short can be read whole where the pointer rests.
function tableCell({ isNumber, id }, words) {
  if (isNumber) return make("td", { class: "right" }, words);
  return make("td", { class: `words ${id}`, title: words.length > 20 ? words : null }, words);
}

function countRows() {
  const shown = table.rows.length;
  const inWords = (number) => number.toLocaleString("en");
  const of = shown === working.length ? "" : ` of ${inWords(working.length)}`;
  const share = shareOf(table.rows);
  const part = share === null ? "" : `, ${formatPercent(share)} of the ${NAMES[state.kind]}`;
  byId("count").textContent = `${inWords(shown)}${of} call${shown === 1 ? "" : "s"}${part}`;
}

// Marks what is selected, and brings the first of it into sight where the table did not choose it.
function markRows() {
  for (const tr of table.body.querySelectorAll("tr.selected")) setSelected(tr, false);
  if (!state.selected.size) return;
  const isSelected = (number) => state.selected.has(table.rows[number].index);
  const numbers = [...table.rows.keys()].filter(isSelected);
  if (!numbers.length) return;
  makeRows(numbers[0] + CHUNK);
  for (const number of numbers) {
    if (number < table.made) setSelected(table.body.children[number], true);
  }
  if (state.source !== "table") scrollTo(table.body.children[numbers[0]]);
}

function setSelected(tr, isSelected) {
  tr.classList.toggle("selected", isSelected);
  tr.setAttribute("aria-selected", String(isSelected));
}

// Only the table scrolls: the picture, where the reader is, stays where it is.
function scrollTo(tr) {
  const box = byId("rows");
  const head = byId("table").tHead.offsetHeight;
  const [top, bottom] = [tr.offsetTop - head, tr.offsetTop + tr.offsetHeight];
  if (top < box.scrollTop || bottom > box.scrollTop + box.clientHeight) {
    box.scrollTop = top - (box.clientHeight - head) / 3;
  }
  activate(tr, false);
}

function activate(tr, isFocused) {
  const before = table.body.children[table.active];
  if (before) before.tabIndex = -1;
  table.active = [...table.body.children].indexOf(tr);
  tr.tabIndex = 0;
  if (isFocused) {
    tr.focus({ preventScroll: true });
    scrollToActive(tr);
  }
}

function scrollToActive(tr) {
  const box = byId("rows");
  const head = byId("table").tHead.offsetHeight;
  if (tr.offsetTop - head < box.scrollTop) box.scrollTop = tr.offsetTop - head;
  const below = tr.offsetTop + tr.offsetHeight - box.clientHeight;
  if (below > box.scrollTop) box.scrollTop = below;
}

function goToRow(index) {
  byId("rows").scrollIntoView({ block: "center" });
  const tr = table.body.querySelector(`tr[data-index="${index}"]`);
  if (tr) activate(tr, true);
}

const STEPS = {
  ArrowDown: 1,
  ArrowUp: -1,
  PageDown: 15,
  PageUp: -15,
  Home: -Infinity,
  End: Infinity,
};

function pressRowKey(event) {
  const tr = event.target.closest("tbody tr");
  if (!tr) return;
  if (event.key in STEPS) {
    const next = Math.max(0, Math.min(table.rows.length - 1, table.active + STEPS[event.key]));
    makeRows(next + 1);
    activate(table.body.children[next], true);
  } else if (event.key === "Enter" || event.key === " ") {
    chooseRow(tr);
  } else return;
  event.preventDefault();
}

function chooseRow(tr) {
  const index = Number(tr.dataset.index);
  const isAlone = state.selected.size === 1 && state.selected.has(index);
  activate(tr, true);
  select(isAlone ? [] : [index], "table");
}

function prepareTable() {
  const box = byId("rows");
  box.addEventListener("scroll", () => {
    const left = box.scrollHeight - box.scrollTop - box.clientHeight;
    if (left < 600 && table.made < table.rows.length) makeRows(table.made + CHUNK);
  }, { passive: true });
  byId("table").addEventListener("click", (event) => {
    const tr = event.target.closest("tbody tr");
    if (tr) chooseRow(tr);
  });
  byId("table").addEventListener("keydown", pressRowKey);
}

// Paper cannot be scrolled: all rows are made, as far as anyone would print them.
function prepareForPrint() {
  makeRows(PRINTED);
  const rest = table.rows.length - table.made;
  const words = `${rest.toLocaleString("en")} more operators, the last in this order, are not printed.`;
  byId("print-note").textContent = rest > 0 ? words : "";
}
