// Every picture can be saved as SVG and as PNG, every card copied.
"use strict";
const scale = 2; // pixels of a PNG for each one of the page

function button(text, name, act) {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = text;
  made.setAttribute("aria-label", name);
  made.addEventListener("click", () => act(made));
  return made;
}

function save(address, name) {
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
}

function paint(image) {
  // on the colour of the page: ink in a picture follows the reader's colour scheme
  const canvas = document.createElement("canvas");
  canvas.width = image.naturalWidth * scale;
  canvas.height = image.naturalHeight * scale;
  const context = canvas.getContext("2d");
  context.fillStyle = getComputedStyle(document.body).backgroundColor;
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  return canvas.toDataURL("image/png");
}

async function copy(card, made) {
  try {
    await navigator.clipboard.writeText(card.textContent);
    made.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(card); // not everywhere may a page write: it is marked instead
    made.textContent = "Marked";
  }
}

for (const figure of document.querySelectorAll("figure[data-name]")) {
  const image = figure.querySelector("img");
  const name = figure.dataset.name;
  const row = document.createElement("div");
  row.className = "save";
  row.append(
    button("SVG", `Save the picture ${name} as SVG`, () => save(image.src, `${name}.svg`)),
    button("PNG", `Save the picture ${name} as PNG`, () => save(paint(image), `${name}.png`)),
  );
  figure.append(row);
}
for (const card of document.querySelectorAll("pre.card")) {
  card.after(button("Copy", "Copy the card", (made) => copy(card, made)));
}
