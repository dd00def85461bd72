// Every drawing of a part can be saved as SVG and as PNG, as it stands, in the colours of the page.
const KEPT = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "font", "text-anchor", "opacity"];

const standalone = (host) => {
  const drawings = [...host.querySelectorAll("svg.drawing")];
  const sizes = drawings.map((own) => own.viewBox.baseVal);
  const width = Math.max(...sizes.map((own) => own.width));
  let y = 0;
  const whole = node("svg", { xmlns: NS });
  drawings.forEach((own, at) => {
    const copy = own.cloneNode(true);
    const parts = own.querySelectorAll("*");
    copy.querySelectorAll("*").forEach((part, place) => {
      const style = getComputedStyle(parts[place]);
      part.removeAttribute("class");
      part.setAttribute("style", KEPT.map((name) => `${name}:${style.getPropertyValue(name)}`).join(";"));
    });
    for (const name of ["class", "style", "role", "aria-label"]) copy.removeAttribute(name);
    for (const [name, value] of Object.entries({ x: 0, y, width: sizes[at].width, height: sizes[at].height })) copy.setAttribute(name, value);
    y += sizes[at].height + 8;
    whole.append(copy);
  });
  for (const [name, value] of Object.entries({ width, height: y, viewBox: `0 0 ${width} ${y}` })) whole.setAttribute(name, value);
  const paper = getComputedStyle(document.body).backgroundColor;
  whole.prepend(node("rect", { width, height: y, fill: paper }));
  return { width, height: y, address: `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(whole))}` };
};

const download = (address, name) => element("a", { href: address, download: name }).click();

const asPng = ({ width, height, address }) => new Promise((done) => {
  const image = new Image();
  image.onload = () => {
    const canvas = element("canvas", { width: 2 * width, height: 2 * height });
    canvas.getContext("2d").drawImage(image, 0, 0, 2 * width, 2 * height);
    done(canvas.toDataURL("image/png"));
  };
  image.src = address;
});

for (const host of document.querySelectorAll(".part")) {
  const canvas = host.querySelector("canvas");
  if (!canvas && !host.querySelector("svg.drawing")) continue;
  const name = host.id || host.dataset.part;
  const saved = element("div", { class: "save" });
  const offer = (kind, act) => {
    const made = element("button", { type: "button", "aria-label": `Save ${name} as ${kind}` }, kind);
    made.addEventListener("click", act);
    saved.append(made);
  };
  if (canvas) offer("PNG", () => download(canvas.toDataURL("image/png"), `${name}.png`));
  else {
    offer("SVG", () => download(standalone(host).address, `${name}.svg`));
    offer("PNG", async () => download(await asPng(standalone(host)), `${name}.png`));
  }
  host.append(saved);
}
