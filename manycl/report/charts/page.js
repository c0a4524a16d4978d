// The interactive Gantt chart. Times are nanoseconds since the start of the run; lanes hold one array per field.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const canvas = document.getElementById("chart");
  const tip = document.getElementById("tip");
  const pen = canvas.getContext("2d");
  const ROW = 18, GAP = 6, AXIS = 26, PAD = 10, LEAST = 20;  // pixels; LEAST: the shortest view in ns
  const MOST_LINES = 300;
  const font = '12px system-ui, "Segoe UI", "DejaVu Sans", sans-serif';
  const hidden = new Set();
  const onPath = new Set(data.path);
  const whole = [data.start, data.end + 0.01 * (data.end - data.start)];
  let view = [...whole];
  let pathOnly = false, hover = null, drag = null, labels = 0, across = 1, pending = false;

  // --- what is where: events of a row in order of start, with the latest end so far, for binary search
  const rows = [];
  const placeOf = new Map();  // node -> [row, index]
  let height = AXIS;
  data.lanes.forEach((lane, number) => {
    lane.top = height + GAP / 2;
    const own = Array.from({ length: lane.rows }, (_, i) =>
      ({ lane, y: lane.top + i * ROW, items: [], latest: [] }));
    lane.start.forEach((start, i) => {
      const row = own[lane.row[i]];
      const end = start + lane.length[i];
      row.latest.push(Math.max(end, row.latest.length ? row.latest[row.latest.length - 1] : end));
      if (lane.node) placeOf.set(lane.node[i], [row, i]);
      row.items.push(i);
    });
    rows.push(...own);
    height += lane.rows * ROW + GAP;
    lane.newGroup = number === 0 || data.lanes[number - 1].group !== lane.group;
  });
  const after = new Map(), before = new Map();
  for (let i = 0; i < data.edges.length; i += 2) {
    const [a, b] = [data.edges[i], data.edges[i + 1]];
    (after.get(a) || after.set(a, []).get(a)).push(b);
    (before.get(b) || before.set(b, []).get(b)).push(a);
  }

  // --- words
  function time(ns) {
    if (ns === 0) return "0 s";
    const [scale, unit] = Math.abs(ns) >= 999.5e6 ? [1e9, "s"] : Math.abs(ns) >= 999.5e3 ? [1e6, "ms"]
      : Math.abs(ns) >= 999.5 ? [1e3, "us"] : [1, "ns"];
    return `${Number((ns / scale).toPrecision(4))} ${unit}`;
  }
  function size(bytes) {
    const unit = [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]].find(([s]) => bytes >= 0.9995 * s);
    return unit ? `${(bytes / unit[0]).toPrecision(3)} ${unit[1]}` : `${bytes} B`;
  }

  // --- looks: a colour, and from the eighth name on a pattern on it
  const dark = (hex) => {
    const [r, g, b] = [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
    return 0.299 * r + 0.587 * g + 0.114 * b < 140;
  };
  function pattern(number) {
    if (!number) return null;
    const tile = document.createElement("canvas");
    tile.width = tile.height = 6;
    const p = tile.getContext("2d");
    p.strokeStyle = p.fillStyle = "#ffffffb0";
    p.lineWidth = 1.4;
    p.beginPath();
    if (number % 4 === 1 || number % 4 === 3) { p.moveTo(-1, 7); p.lineTo(7, -1); p.moveTo(-4, 4); p.lineTo(4, -4); p.moveTo(2, 10); p.lineTo(10, 2); }
    if (number % 4 === 3) { p.moveTo(-1, -1); p.lineTo(7, 7); }
    if (number % 4 === 0) { p.moveTo(0, 3); p.lineTo(6, 3); }
    p.stroke();
    if (number % 4 === 2) p.fillRect(1, 1, 2.5, 2.5);
    return pen.createPattern(tile, "repeat");
  }
  data.looks.forEach((look) => {
    look.pattern = pattern(look.pattern);
    look.ink = dark(look.colour) ? "#fff" : "#000";
  });

  // --- drawing
  const theme = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const width = () => across;  // the canvas's own is slow to ask for: it is asked once per drawing
  const scale = () => (width() - labels - PAD) / (view[1] - view[0]);
  const xOf = (t) => labels + (t - view[0]) * scale();
  const tOf = (x) => view[0] + (x - labels) / scale();

  function firstVisible(row) {  // the first event of a row that ends after the left edge
    let low = 0, high = row.items.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (row.latest[middle] < view[0]) low = middle + 1; else high = middle;
    }
    return low;
  }

  function fill(look, x, y, w, h) {
    pen.fillStyle = look.colour;
    pen.fillRect(x, y, w, h);
    if (look.pattern && w > 2) { pen.fillStyle = look.pattern; pen.fillRect(x, y, w, h); }
  }

  function drawRow(row) {
    const { lane } = row;
    const right = width() - PAD;
    let filled = -1;  // bars narrower than a pixel share one
    for (let k = firstVisible(row); k < row.items.length; k++) {
      const i = row.items[k];
      const x0 = Math.max(labels, xOf(lane.start[i]));
      if (x0 > right) break;
      if (hidden.has(lane.look[i])) continue;
      const x1 = Math.min(right, xOf(lane.start[i] + lane.length[i]));
      if (x1 < labels || (x1 - x0 < 1 && x1 < filled)) continue;
      const look = data.looks[lane.look[i]];
      const w = Math.max(1, x1 - x0);
      filled = x0 + w;
      pen.globalAlpha = pathOnly && !(lane.node && onPath.has(lane.node[i])) ? 0.18 : 1;
      fill(look, x0, row.y + 1, w > 3 ? w - 0.8 : w, ROW - 2);
      if (w > 26) {
        const room = w - 8;
        const name = data.strings[lane.name[i]];
        if (pen.measureText(name).width <= room) {
          if (look.pattern) { pen.fillStyle = look.colour; pen.fillRect(x0 + 2, row.y + 2, pen.measureText(name).width + 4, ROW - 4); }
          pen.fillStyle = look.ink;
          pen.fillText(name, x0 + 4, row.y + ROW / 2);
        }
      }
    }
    pen.globalAlpha = 1;
  }

  function drawAxis() {
    const about = (view[1] - view[0]) / Math.max(2, (width() - labels) / 110);
    const power = 10 ** Math.floor(Math.log10(about));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= about);
    const [unit, word] = view[1] >= 1e9 ? [1e9, "s"] : view[1] >= 1e6 ? [1e6, "ms"] : view[1] >= 1e3 ? [1e3, "us"] : [1, "ns"];
    const digits = Math.min(9, Math.max(0, -Math.floor(Math.log10(step / unit) + 1e-9)));
    pen.textAlign = "center";
    for (let n = Math.ceil(view[0] / step); n * step <= view[1]; n++) {
      const x = xOf(n * step);
      if (x > width() - PAD) break;
      pen.fillStyle = theme("--line");
      pen.fillRect(Math.round(x), AXIS - 4, 1, height - AXIS + 4);
      pen.fillStyle = theme("--quiet");
      const words = `${((n * step) / unit).toFixed(digits)} ${word}`;
      const half = pen.measureText(words).width / 2;
      if (x + half < width()) pen.fillText(words, Math.max(x, labels + half + 2), 11);
    }
    pen.textAlign = "left";
  }

  function drawDependences(node) {
    const here = placeOf.get(node);
    pen.strokeStyle = theme("--text");
    pen.lineWidth = 1.2;
    pen.beginPath();
    const line = (from, to) => {
      if (!from || !to) return;
      const [a, i] = from, [b, k] = to;
      const x0 = xOf(a.lane.start[i] + a.lane.length[i]), x1 = xOf(b.lane.start[k]);
      const y0 = a.y + ROW / 2, y1 = b.y + ROW / 2, bend = Math.max(12, Math.abs(x1 - x0) / 3);
      pen.moveTo(x0, y0);
      pen.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1, y1);
      pen.moveTo(x1 - 5, y1 - 3);
      pen.lineTo(x1, y1);
      pen.lineTo(x1 - 5, y1 + 3);
    };
    (before.get(node) || []).slice(0, MOST_LINES).forEach((n) => line(placeOf.get(n), here));
    (after.get(node) || []).slice(0, MOST_LINES).forEach((n) => line(here, placeOf.get(n)));
    pen.stroke();
  }

  function drawHover() {
    const { row, i } = hover, { lane } = row;
    pen.strokeStyle = theme("--text");
    pen.lineWidth = 2;
    const x0 = xOf(lane.start[i]);
    pen.strokeRect(x0 - 1, row.y, Math.max(1, lane.length[i] * scale()) + 2, ROW);
    if (lane.node) drawDependences(lane.node[i]);
  }

  function fitted(words, room) {
    if (pen.measureText(words).width <= room) return words;
    let length = words.length;
    while (length > 1 && pen.measureText(`${words.slice(0, length)}…`).width > room) length--;
    return `${words.slice(0, length)}…`;
  }

  function drawLabels() {
    pen.fillStyle = theme("--page");
    pen.fillRect(0, 0, labels, height);
    for (const lane of data.lanes) {
      const y = lane.top - GAP / 2;
      pen.fillStyle = theme("--text");
      pen.fillText(fitted(lane.label, labels - 14), 8, lane.top + (lane.rows * ROW) / 2);
      pen.fillStyle = lane.newGroup ? theme("--quiet") : theme("--line");
      pen.fillRect(0, Math.round(y), width(), 1);
    }
  }

  function draw() {
    pending = false;
    across = canvas.clientWidth;
    const ratio = window.devicePixelRatio || 1;
    canvas.style.height = `${height}px`;
    if (canvas.width !== Math.round(width() * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width() * ratio);
      canvas.height = Math.round(height * ratio);
    }
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.font = font;
    pen.textBaseline = "middle";
    labels = Math.min(240, 0.3 * width(), 18 + Math.max(40, ...data.lanes.map((l) => pen.measureText(l.label).width)));
    pen.fillStyle = theme("--page");
    pen.fillRect(0, 0, width(), height);
    pen.save();
    pen.beginPath();
    pen.rect(labels, 0, width() - labels, height);
    pen.clip();
    drawAxis();
    rows.forEach(drawRow);
    pen.fillStyle = theme("--fail");
    data.failures.forEach((t) => pen.fillRect(xOf(t) - 1, AXIS - 6, 2, height));
    if (hover) drawHover();
    pen.restore();
    drawLabels();
  }
  function redraw() {
    if (!pending) { pending = true; requestAnimationFrame(draw); }
  }

  // --- moving
  function show(start, end) {
    const most = whole[1] - whole[0];
    const span = Math.min(most, Math.max(Math.min(LEAST, most), end - start));
    const left = Math.min(Math.max(start, whole[0]), whole[1] - span);
    view = [left, left + span];
    redraw();
  }
  function zoom(factor, x) {
    const at = tOf(x);
    show(at - (at - view[0]) * factor, at + (view[1] - at) * factor);
  }
  const shift = (part) => show(view[0] + part * (view[1] - view[0]), view[1] + part * (view[1] - view[0]));
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left - canvas.clientLeft, event.clientY - box.top - canvas.clientTop];
  };
  canvas.addEventListener("wheel", (event) => {
    const [x] = place(event);
    if (x < labels) return;
    event.preventDefault();
    const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 400 : 1;
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      shift((unit * (event.deltaX || event.deltaY)) / width());
    } else zoom(Math.exp(Math.max(-1, Math.min(1, unit * event.deltaY * 0.002))), x);
    point(event);
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    drag = { x: place(event)[0], view: [...view] };
    canvas.classList.add("moving");
  });
  canvas.addEventListener("pointermove", (event) => {
    if (drag) {
      const by = (drag.x - place(event)[0]) / scale();
      show(drag.view[0] + by, drag.view[1] + by);
    }
    point(event);
  });
  for (const kind of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(kind, () => { drag = null; canvas.classList.remove("moving"); });
  }
  canvas.addEventListener("pointerleave", () => { hover = null; tip.style.display = "none"; redraw(); });
  canvas.addEventListener("dblclick", () => show(...whole));
  canvas.addEventListener("keydown", (event) => {
    const middle = (labels + width()) / 2;
    const action = { "+": () => zoom(0.7, middle), "=": () => zoom(0.7, middle), "-": () => zoom(1 / 0.7, middle),
      "0": () => show(...whole), ArrowLeft: () => shift(-0.15), ArrowRight: () => shift(0.15) }[event.key];
    if (action) { event.preventDefault(); action(); }
  });

  // --- pointing
  function find(x, y) {
    const row = rows.find((r) => y >= r.y && y < r.y + ROW);
    if (!row || x < labels) return null;
    const near = 3 / scale();
    let best = null, distance = near;
    for (let k = firstVisible(row); k < row.items.length; k++) {
      const i = row.items[k], start = row.lane.start[i];
      const away = Math.max(0, start - tOf(x), tOf(x) - start - row.lane.length[i]);
      if (start > tOf(x) + near) break;
      if (!hidden.has(row.lane.look[i]) && away <= distance) { best = { row, i }; distance = away; }
    }
    return best;
  }
  function describe({ row, i }) {
    const { lane } = row, look = data.looks[lane.look[i]], text = data.strings;
    const lines = [`${lane.label}, start ${time(lane.start[i])}, duration ${time(lane.length[i])}`];
    if (lane.kind === "kernel") {
      if (look.name !== text[lane.name[i]]) lines.push(`kernel ${look.name}`);
      lines.push(text[lane.sizes[i]]);
      lines.push(`node ${lane.node[i]}` + (lane.component[i] !== null ? `, task component ${lane.component[i]}` : ""));
    } else if (lane.kind === "transfer") {
      const speed = lane.length[i] > 0 ? `, ${size(lane.bytes[i] / (lane.length[i] * 1e-9))}/s` : "";
      lines.push(`${size(lane.bytes[i])}${speed}`);
    } else lines.push(`node ${lane.node[i]}`);
    if (lane.node && onPath.has(lane.node[i])) lines.push("on the longest path");
    return [text[lane.name[i]], ...lines];
  }
  function point(event) {
    const [x, y] = place(event);
    hover = find(x, y);
    tip.style.display = hover ? "block" : "none";
    if (hover) {
      const [head, ...lines] = describe(hover);
      tip.replaceChildren(...[["b", head], ...lines.map((l) => ["span", l])].map(([tag, words]) =>
        Object.assign(document.createElement(tag), { textContent: words })));
      const box = tip.getBoundingClientRect();
      tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 6))}px`;
      tip.style.top = `${event.clientY + 18 + box.height > innerHeight ? event.clientY - box.height - 12 : event.clientY + 18}px`;
    }
    redraw();
  }

  // --- legend
  const legend = document.getElementById("legend");
  function button(words, kind, pressed, action) {
    const b = Object.assign(document.createElement("button"), { className: kind });
    b.append(words);
    if (pressed !== null) b.setAttribute("aria-pressed", pressed);
    b.addEventListener("click", () => { action(b); redraw(); });
    legend.append(b);
    return b;
  }
  button("show all", "mode", null, () => show(...whole));
  if (onPath.size) {
    button("longest path", "mode", false, (b) => { pathOnly = !pathOnly; b.setAttribute("aria-pressed", pathOnly); });
  }
  data.looks.forEach((look, number) => {
    if (!look.count) return;
    const b = button(look.name, "look", true, (self) => {
      if (!hidden.delete(number)) hidden.add(number);
      self.setAttribute("aria-pressed", !hidden.has(number));
    });
    const swatch = Object.assign(document.createElement("canvas"), { width: 24, height: 24 });
    const p = swatch.getContext("2d");
    p.scale(2, 2);
    p.fillStyle = look.colour;
    p.fillRect(0, 0, 12, 12);
    if (look.pattern) { p.fillStyle = look.pattern; p.fillRect(0, 0, 12, 12); }
    b.prepend(swatch);
    b.append(Object.assign(document.createElement("small"), { textContent: `${look.count} · ${time(look.total)}` }));
  });

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  new ResizeObserver(redraw).observe(canvas);
  draw();
})();
