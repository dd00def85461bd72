// The prior explorer: one query, its visible keys, and what becomes of them.
//   log prior(r) = -exp(theta_alpha) (|r + mu| + eps)^beta
//   posterior    = softmax(t (content + log prior)),  t = s ln n with SSMax, else 1
const EPS = 1e-5;
const FLOOR = Math.exp(80);

const logPrior = (count, { alpha, beta, mu }) => Array.from({ length: count }, (_, distance) =>
  -Math.min(Math.exp(alpha + beta * Math.log(Math.abs(distance + mu) + EPS)), FLOOR));

// The same noise for everyone, in [-1, 1): only the needle differs from it.
const noise = (distance) => {
  const wave = Math.sin(12.9898 * (distance + 1)) * 43758.5453;
  return 2 * (wave - Math.floor(wave)) - 1;
};

const inference = (settings) => {
  const { count, needle, strength, scale } = settings;
  const at = Math.round(needle * (count - 1));
  const content = Array.from({ length: count }, (_, distance) =>
    (distance === at ? strength : noise(distance)));
  const prior = logPrior(count, settings);
  const factor = scale > 0 ? scale * Math.log(count) : 1;
  return {
    at,
    prior: softmax(prior),
    likelihood: softmax(content),
    posterior: softmax(content.map((score, distance) => factor * (score + prior[distance]))),
  };
};

const NAMED = {
  "NoPE (uniform)": { alpha: 0, beta: 0, mu: 0 },
  "ALiBi, slope 1/2 (Laplace)": { alpha: -Math.LN2, beta: 1, mu: 0 },
  "ALiBi, slope 1/256 (Laplace)": { alpha: -8 * Math.LN2, beta: 1, mu: 0 },
  "Gaussian": { alpha: -6, beta: 2, mu: 0 },
  "looks far (β = −0.6)": { alpha: 2, beta: -0.6, mu: 0 },
};

const CONTROLS = [
  ["alpha", "θα (log of the rate)", -10, 4, "any", 0],
  ["beta", "β (shape)", -1.5, 2.5, 0.05, 1],
  ["mu", "μ (location)", -64, 64, 1, 0],
  ["scale", "SSMax s (0: off)", 0, 2, 0.05, 0],
  ["length", "context, log2 of the keys", 2, 13, 1, 9],
  ["needle", "where the needle is (share of the context)", 0, 1, 0.01, 0.8],
  ["strength", "content score of the needle", 0, 16, 0.25, 6],
];

const explorer = (host) => {
  const inputs = {};
  const controls = element("div", { class: "controls" });
  for (const [name, label, min, max, step, value] of CONTROLS) {
    const id = `prior-${name}`;
    const input = element("input", { type: "range", id, min, max, step, value });
    const shown = element("output", { for: id });
    inputs[name] = input;
    input.addEventListener("input", () => draw());
    input.shown = shown;
    controls.append(element("label", { for: id }, `${label} `, shown), input);
  }
  const named = element("p", { class: "named" }, "Start from ");
  for (const [name, values] of Object.entries(NAMED)) {
    const button = element("button", { type: "button" }, name);
    button.addEventListener("click", () => {
      for (const [key, value] of Object.entries(values)) inputs[key].value = value;
      draw();
    });
    named.append(button, " ");
  }
  const pictures = element("div", { class: "pictures" });
  const said = element("p", { class: "said", "aria-live": "polite" });
  host.append(pictures, said, named, controls);

  const draw = () => {
    const settings = Object.fromEntries(
      Object.entries(inputs).map(([name, input]) => [name, Number(input.value)]));
    settings.count = 2 ** settings.length;
    for (const [name, input] of Object.entries(inputs)) {
      input.shown.textContent = name === "length" ? `${settings.count} keys` : short(settings[name]);
    }
    const found = inference(settings);
    host.found = { ...found, settings };
    pictures.replaceChildren(rows(found, settings), plane(settings));
    const share = (row) => percent(row[found.at]);
    said.textContent = `The needle lies ${found.at} keys back. The prior gives it ` +
      `${share(found.prior)}, the content alone ${share(found.likelihood)}, the posterior ` +
      `${share(found.posterior)}.`;
  };
  draw();
};

const rows = (found, { count }) => {
  const width = WIDE, height = 96, left = 84;
  const picture = drawing(width, 3 * height + 34,
    "Prior, likelihood and posterior over the distance to each visible key");
  const scaleX = (distance) => left + (width - left - 10) *
    Math.log2(1 + distance) / Math.log2(1 + Math.max(count - 1, 1));
  ["prior", "likelihood", "posterior"].forEach((name, row) => {
    const base = (row + 1) * height - 8;
    const top = Math.max(...found[name]);
    const xs = [], ys = [];
    found[name].forEach((value, distance) => {
      xs.push(scaleX(distance));
      ys.push(base - (height - 26) * value / top);
    });
    picture.append(
      text(4, base - height / 2 + 12, name, { class: "label" }),
      text(left - 6, base - height + 30, short(top), { class: "tick", "text-anchor": "end" }),
      node("path", { d: `M${xs[0]} ${base}L${path(xs, ys).slice(1)}L${xs.at(-1)} ${base}Z`, class: `area c${row}` }),
      node("line", { x1: left, x2: width - 10, y1: base, y2: base, class: "axis" }),
    );
    const level = base - (height - 26) * Math.min(1 / count / top, 1);
    picture.append(node("line", { x1: left, x2: width - 10, y1: level, y2: level, class: "needle" }));
  });
  const marker = scaleX(found.at);
  picture.append(node("line", { x1: marker, x2: marker, y1: 8, y2: 3 * height - 8, class: "needle" }));
  for (let distance = 1; distance < count; distance *= 4) {
    picture.append(text(scaleX(distance), 3 * height + 8, distance, { class: "tick", "text-anchor": "middle" }));
  }
  picture.append(text(width / 2, 3 * height + 28, "distance to the key (dashed: the needle)", { class: "tick", "text-anchor": "middle" }));
  return picture;
};

const plane = ({ alpha, beta }) => {
  const width = 300, height = 240, left = 40, low = 30;
  const picture = drawing(width, height, "Where this prior lies among all of them");
  const x = (value) => left + (width - left - 14) * (value + 1.5) / 4;
  const y = (value) => height - low - (height - low - 14) * (value + 10) / 14;
  picture.append(
    node("line", { x1: x(0), x2: x(0), y1: y(-10), y2: y(4), class: "axis" }),
    node("line", { x1: x(-1.5), x2: x(2.5), y1: y(-10), y2: y(-10), class: "axis" }),
    text(width / 2, height - 4, "β", { class: "tick" }), text(6, height / 2, "θα", { class: "tick" }),
    node("line", { x1: x(0), x2: x(0), y1: y(-10), y2: y(4), class: "family" }),
    text(x(0) + 4, y(3), "NoPE", { class: "tick" }),
    node("line", { x1: x(1), x2: x(1), y1: y(-8 * Math.LN2), y2: y(-Math.LN2), class: "family" }),
    text(x(1) + 4, y(-3), "ALiBi", { class: "tick" }),
    text(x(-1.45), y(-9.4), "far", { class: "tick" }),
  );
  for (const value of [-1, 0, 1, 2]) {
    picture.append(text(x(value), height - low + 14, value, { class: "tick", "text-anchor": "middle" }));
  }
  picture.append(node("circle", { cx: x(beta), cy: y(alpha), r: 6, class: "point" }));
  return picture;
};

for (const host of document.querySelectorAll("[data-part=prior]")) explorer(host);
