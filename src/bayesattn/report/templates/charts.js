// Heatmaps, curves and point clouds of single claims.
const heatmap = (host, data) => {
  const left = 20 + 6.6 * Math.max(...data.rows.map((name) => name.length)), cell = Math.min(56, 560 / data.columns.length), row = 24;
  const width = left + cell * data.columns.length + 10, height = row * data.rows.length + 44;
  const picture = drawing(width, height, `${data.rowLabel} by ${data.columnLabel}: ${data.unit}`);
  const [low, high] = data.range ?? [Math.min(...data.values.flat()), Math.max(...data.values.flat())];
  data.rows.forEach((name, at) => {
    picture.append(text(left - 6, at * row + 17, name, { class: "tick", "text-anchor": "end" }));
    data.columns.forEach((column, place) => {
      const value = data.values[at][place];
      const share = (value - low) / (high - low || 1);
      const box = node("rect", { x: left + place * cell, y: at * row + 1, width: cell - 2, height: row - 2,
        style: `fill:${ramp(share)}` });
      box.append(node("title", {}, `${name}, ${column}: ${short(value)} ${data.unit}`));
      picture.append(box, text(left + place * cell + cell / 2 - 1, at * row + 16, short(value),
        { class: "inside", "text-anchor": "middle", style: `fill:${share > 0.55 ? "#111" : "#fff"}` }));
    });
  });
  data.columns.forEach((column, place) => picture.append(
    text(left + place * cell + cell / 2, data.rows.length * row + 14, column, { class: "tick", "text-anchor": "middle" })));
  picture.append(text(left, data.rows.length * row + 34, `${data.columnLabel}; ${data.unit}`, { class: "tick" }));
  host.append(picture);
};

const curves = (host, data) => {
  // names stand on the right, or below where there is no room
  const width = WIDE, height = 300, left = 52, low = 40, below = width < 500, right = below ? 12 : 150;
  const named = below ? [left, height + 10] : [width - right + 8, 8];
  const picture = drawing(width, height + (below ? 18 * data.series.length + 6 : 0), `${data.yLabel} over ${data.xLabel}`);
  const along = (value) => (data.logX ? Math.log10(1 + value) : value);
  const places = [...new Set(data.series.flatMap((one) => one.x ?? data.x))].sort((a, b) => a - b);
  const first = along(places[0]), last = along(places.at(-1));
  const all = data.series.flatMap((one) => one.y).filter(Number.isFinite);
  const [bottom, top] = data.range ?? [Math.min(0, ...all), Math.max(...all)];
  const x = (value) => left + (width - left - right) * (along(value) - first) / (last - first || 1);
  const y = (value) => height - low - (height - low - 10) * (value - bottom) / (top - bottom || 1);
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    const value = bottom + share * (top - bottom);
    picture.append(node("line", { x1: left, x2: width - right, y1: y(value), y2: y(value), class: "grid" }),
      text(left - 5, y(value) + 4, short(value), { class: "tick", "text-anchor": "end" }));
  }
  const every = Math.ceil(places.length / 6);
  places.forEach((value, at) => {
    if (at % every === 0 || at === places.length - 1) {
      picture.append(text(x(value), height - low + 15, short(value), { class: "tick", "text-anchor": "middle" }));
    }
  });
  data.series.forEach((one, at) => {
    const own = one.x ?? data.x;
    if (one.low) {
      own.forEach((value, place) => picture.append(
        node("line", { x1: x(value), x2: x(value), y1: y(one.low[place]), y2: y(one.high[place]), class: `c${at % 6}` }),
        node("circle", { cx: x(value), cy: y(one.y[place]), r: 4, class: `c${at % 6}` })));
    }
    picture.append(node("path", { d: path(own.map(x), one.y.map(y)), class: `curve c${at % 6}` }),
      node("rect", { x: named[0], y: named[1] + 18 * at, width: 14, height: 3, class: `bar c${at % 6}` }),
      text(named[0] + 20, named[1] + 6 + 18 * at, one.name, { class: "tick" }));
  });
  picture.append(text((left + width - right) / 2, height - 6, data.xLabel, { class: "tick", "text-anchor": "middle" }),
    text(left, 9, data.yLabel, { class: "tick" }));
  host.append(picture);
};

const manifold = (host, data) => {
  const size = 420;
  const canvas = element("canvas", { width: size, height: size, tabindex: 0, role: "img",
    "aria-label": `${data.points.length} states on three axes, coloured by ${data.colourLabel}; arrow keys turn them` });
  const view = { yaw: 0.6, pitch: 0.4 };
  const [low, high] = [Math.min(...data.colour), Math.max(...data.colour)];
  const extent = Math.max(...data.points.flat().map(Math.abs)) || 1;
  const draw = () => {
    const pen = canvas.getContext("2d");
    const ink = getComputedStyle(document.body).color;
    const [cy, sy, cp, sp] = [Math.cos(view.yaw), Math.sin(view.yaw), Math.cos(view.pitch), Math.sin(view.pitch)];
    const turn = ([a, b, c]) => {
      const x = cy * a + sy * c, z = -sy * a + cy * c;
      return [x, cp * b - sp * z, sp * b + cp * z];
    };
    const place = ([x, y]) => [size / 2 + 0.42 * size * x / extent, size / 2 - 0.42 * size * y / extent];
    pen.clearRect(0, 0, size, size);
    data.axes.forEach((name, at) => {
      const end = [0, 0, 0];
      end[at] = extent;
      const [x, y] = place(turn(end));
      pen.strokeStyle = pen.fillStyle = ink;
      pen.globalAlpha = 0.5;
      pen.beginPath(); pen.moveTo(size / 2, size / 2); pen.lineTo(x, y); pen.stroke();
      pen.fillText(name, x + 4, y);
    });
    pen.globalAlpha = 0.85;
    data.points.map((point, at) => [turn(point), at]).sort((a, b) => a[0][2] - b[0][2]).forEach(([point, at]) => {
      const [x, y] = place(point);
      pen.fillStyle = ramp((data.colour[at] - low) / (high - low || 1));
      pen.beginPath(); pen.arc(x, y, 3, 0, 7); pen.fill();
    });
    host.found = { ...view };
  };
  const drag = { from: null };
  canvas.addEventListener("pointerdown", (event) => { drag.from = [event.clientX, event.clientY]; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", (event) => {
    if (!drag.from) return;
    view.yaw += (event.clientX - drag.from[0]) / 120;
    view.pitch += (event.clientY - drag.from[1]) / 120;
    drag.from = [event.clientX, event.clientY];
    draw();
  });
  canvas.addEventListener("pointerup", () => { drag.from = null; });
  canvas.addEventListener("keydown", (event) => {
    const turns = { ArrowLeft: ["yaw", -0.1], ArrowRight: ["yaw", 0.1], ArrowUp: ["pitch", -0.1], ArrowDown: ["pitch", 0.1] };
    if (!(event.key in turns)) return;
    event.preventDefault();
    const [which, by] = turns[event.key];
    view[which] += by;
    draw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  const scale = element("p", { class: "scale" }, `${data.colourLabel}: ${short(low)} `,
    element("span", { class: "ramp", style: `background:linear-gradient(to right,${[0, 0.25, 0.5, 0.75, 1].map(ramp).join(",")})` }),
    ` ${short(high)}. Drag, or use the arrow keys, to turn.`);
  host.append(canvas, scale);
  draw();
};

const PARTS = { beliefs: player, heatmap, curves, manifold, attention: attentionOf, simplex };
for (const host of document.querySelectorAll("[data-exhibit]")) {
  const data = JSON.parse(document.getElementById(host.dataset.exhibit).textContent);
  PARTS[host.dataset.kind](host, data);
}
