// Puts the parts together: who follows which choice, and the keys that work everywhere.

const FILTERS = ["search", "type", "bound", "module"];

function wire() {
  on(["machine", "kind", "level", "colour"], drawControls);
  on(["machine", "level", "kind"], () => { picture.range = null; });
  on(["machine", "kind"], () => { growTree(); drawBars(); });
  on(["type", "bound"], drawBars);
  on(["machine", "type", "bound", "module"], drawFilters);
  on(["machine", "kind", "colour", "module"], drawTree);
  on(["machine", "kind", "colour", "hidden"], drawLegend);
  on(["machine", "lines"], drawLineKeys);
  on(["machine", "kind", "level", "colour", "hidden", "lines", ...FILTERS], drawPicture);
  on(["machine", "kind", "level", "sort", ...FILTERS], drawTable);
  on(["selected"], () => { drawMarks(); drawStrip(); markRows(); });
  on(["machine", "kind", "level", "selected"], showDetails);
}

function drawPicture() {
  redraw();
  drawStrip();
}

function pressAnywhere(event) {
  const isTyping = event.target.matches("input, select, textarea");
  if (event.key === "Escape") {
    hoverAt(null);
    if (event.target === byId("search")) byId("search").value = "";
    const search = event.target === byId("search") ? { search: "" } : {};
    change({ selected: new Set(), source: "keys", ...search });
  } else if (event.key === "/" && !isTyping) {
    byId("search").focus();
    event.preventDefault();
  }
}

function start() {
  byId("live").hidden = false;
  document.documentElement.classList.add("live");
  document.body.append(card);
  prepareLayers();
  prepareGestures();
  prepareTree();
  prepareTable();
  prepareFilters();
  prepareControls();
  growTree();
  drawControls();
  drawPicture();
  drawLegend();
  drawLineKeys();
  drawBars();
  drawFilters();
  drawTree();
  drawTable();
  wire();
  document.addEventListener("keydown", pressAnywhere);
  window.addEventListener("beforeprint", prepareForPrint);
  let width = byId("canvas").clientWidth;
  new ResizeObserver(() => {
    const now = byId("canvas").clientWidth;
    // Paper is narrower than the window, and there the picture is scaled.
    if (now && now !== width && !matchMedia("print").matches) redraw();
    width = now;
  }).observe(byId("canvas"));
}

start();
