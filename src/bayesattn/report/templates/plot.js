// Small drawing helpers. Ink and colours come from the page, so figures follow light and dark.
const NS = "http://www.w3.org/2000/svg";

// A drawing shrinks with the page, and its words with it: phones get narrower ones.
const WIDE = matchMedia("(max-width: 40rem)").matches ? 380 : 620;

const node = (name, attributes = {}, ...children) => {
  const made = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
};

const element = (name, attributes = {}, ...children) => {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
};

const drawing = (width, height, label) => node("svg", {
  viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label, class: "drawing",
  style: `flex: ${(width / 300).toFixed(2)} 1 ${Math.round(width / 28)}rem`,
});

const percent = (share) => (share < 1e-5 ? "under 0.001 %" : `${(100 * share).toPrecision(3)} %`);

const text = (x, y, words, attributes = {}) => node("text", { x, y, ...attributes }, words);

const short = (value) => {
  if (value === 0) return "0";
  const size = Math.abs(value);
  return size >= 0.01 && size < 10000 ? String(+value.toPrecision(3)) : value.toExponential(1);
};

const path = (xs, ys) =>
  xs.map((x, at) => `${at && Number.isFinite(ys[at - 1]) ? "L" : "M"}${x.toFixed(2)} ${ys[at].toFixed(2)}`).join("");

// A colour between blue (0) and yellow (1), told apart by all readers (after viridis).
const STOPS = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
const ramp = (share) => {
  const place = Math.min(Math.max(share, 0), 1) * (STOPS.length - 1);
  const low = Math.min(Math.floor(place), STOPS.length - 2);
  const mixed = STOPS[low].map((c, at) => Math.round(c + (STOPS[low + 1][at] - c) * (place - low)));
  return `rgb(${mixed.join(",")})`;
};
