// Prior x likelihood = posterior of a language model, for every token, layer and head.
//   posterior_ij = softmax_j(log likelihood_ij + log prior_ij);  a prior of null is uniform
const shares = (packed) => {
  const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  return Float64Array.from({ length: bytes.length / 2 }, (_, at) => view.getInt16(2 * at, true) / 100);
};

const attentionOf = (host, data) => {
  const count = data.tokens.length, each = (count * (count + 1)) / 2;
  const logs = data.layers.map((layer) => ({
    likelihood: shares(layer.likelihood), prior: layer.prior && shares(layer.prior) }));
  const heads = logs[0].likelihood.length / each;
  const [layer, head] = data.start;
  const state = { layer, head, query: count - 1 };
  const id = host.id;
  const choice = (name, labels, value) => {
    const select = element("select", { id: `${id}-${name}` });
    labels.forEach((label, at) => select.append(element("option", { value: at }, label)));
    select.value = value;
    select.addEventListener("change", () => { state[name] = Number(select.value); draw(); });
    return select;
  };
  const controls = element("div", { class: "player" },
    element("label", { for: `${id}-layer` }, "Layer "), choice("layer", data.layers.map((own) => own.name.replace("layer ", "")), layer),
    element("label", { for: `${id}-head` }, "head "), choice("head", Array.from({ length: heads }, (_, at) => String(at)), head));
  const words = element("div", { class: "tokens", role: "group", "aria-label": "Tokens of the text: point at one, or move with the arrow keys" });
  // blank tokens get a sign, so that they can be seen and read out
  const seen = (token) => (token.trim() ? token : [...token].map((sign) => (sign === "\n" ? "⏎" : "␣")).join("") || "∅");
  const buttons = data.tokens.map((token, at) => {
    const made = element("button", { type: "button", tabindex: at === state.query ? 0 : -1 }, seen(token));
    const choose = () => { state.query = at; draw(); };
    made.addEventListener("pointerenter", choose);
    made.addEventListener("focus", choose);
    words.append(made);
    return made;
  });
  words.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    buttons[Math.min(Math.max(state.query + step, 0), count - 1)].focus();
  });
  const said = element("p", { class: "said" });
  const pictures = element("div", { class: "pictures" });
  host.append(controls, words, said, pictures);

  const row = (packed, query) => {
    const from = state.head * each + (query * (query + 1)) / 2;
    return packed.slice(from, from + query + 1);
  };
  const draw = () => {
    const own = logs[state.layer], size = state.query + 1;
    const likelihood = softmax([...row(own.likelihood, state.query)]);
    const flat = Array.from({ length: size }, () => 0);
    const log = own.prior ? [...row(own.prior, state.query)] : flat;
    const prior = softmax(log);
    const posterior = softmax([...row(own.likelihood, state.query)].map((score, at) => score + log[at]));
    host.found = { ...state, prior, likelihood, posterior };
    buttons.forEach((button, at) => {
      const weight = at < size ? posterior[at] : 0;
      button.style.background = `color-mix(in srgb, var(--c2) ${Math.round(100 * Math.sqrt(weight))}%, transparent)`;
      button.style.opacity = at < size ? 1 : 0.45;
      button.tabIndex = at === state.query ? 0 : -1;
      button.toggleAttribute("data-query", at === state.query);
    });
    const best = posterior.indexOf(Math.max(...posterior));
    const [next, chance] = data.next[state.query];
    said.textContent = `At “${seen(data.tokens[state.query]).trim()}” this head looks most at “${seen(data.tokens[best]).trim()}”: prior ` +
      `${percent(prior[best])}, content alone ${percent(likelihood[best])}, posterior ${percent(posterior[best])}. ` +
      `The model expects “${seen(next).trim()}” next (${percent(chance)}).`;
    pictures.replaceChildren(factorRows({ prior, likelihood, posterior }, data.tokens));
  };
  draw();
};

const factorRows = (found, tokens) => {
  const width = WIDE, left = 84, row = 60, size = found.prior.length;
  const picture = drawing(width, 3 * row + 30, "Prior, likelihood and posterior over the tokens so far");
  const cell = (width - left - 8) / tokens.length;
  ["prior", "likelihood", "posterior"].forEach((name, at) => {
    const base = (at + 1) * row;
    const y = (share) => base - (row - 16) * share;
    picture.append(text(4, base - row / 2 + 10, name, { class: "label" }),
      text(left - 6, y(1) + 8, "1", { class: "tick", "text-anchor": "end" }),
      node("line", { x1: left, x2: width - 8, y1: base, y2: base, class: "axis" }));
    found[name].forEach((share, key) => picture.append(node("rect", { x: left + key * cell, width: Math.max(cell - 1, 0.5),
      y: y(share), height: base - y(share), class: `bar c${at}` })));
    picture.append(node("line", { x1: left, x2: left + size * cell, y1: y(1 / size), y2: y(1 / size), class: "needle" }));
  });
  picture.append(text(left, 3 * row + 20, "tokens so far, in order (dashed: looking at all of them alike)", { class: "tick" }));
  return picture;
};

// Beliefs about three hidden states, in a triangle; panels side by side.
const simplex = (host, data) => {
  const size = 230, top = 24, all = data.panels.flatMap((panel) => panel.points);
  const low = [0, 1].map((axis) => Math.min(...all.map((point) => point[axis])));
  const span = Math.max(...[0, 1].map((axis) => Math.max(...all.map((point) => point[axis])) - low[axis])) || 1;
  const pictures = element("div", { class: "panels" });
  data.panels.forEach((panel) => {
    const picture = drawing(size, size + top, panel.name);
    picture.append(text(4, 14, panel.name, { class: "tick" }));
    panel.points.forEach(([x, y], at) => picture.append(node("circle", {
      cx: (4 + (size - 8) * (x - low[0]) / span).toFixed(1), cy: (top + size - 4 - (size - 8) * (y - low[1]) / span).toFixed(1),
      r: 1.6, fill: data.colours[at] })));
    pictures.append(picture);
  });
  host.append(pictures);
};
