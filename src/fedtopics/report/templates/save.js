
// Figures as files: styles of the page, such as colours, are copied into them.
const KEPT = ["fill", "stroke", "stroke-width", "opacity", "font-size", "font-weight", "font-family",
  "paint-order", "vector-effect", "stroke-linejoin"];
function download(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
function standalone(svg) {
  const copy = svg.cloneNode(true);
  const own = [svg, ...svg.querySelectorAll("*")], copies = [copy, ...copy.querySelectorAll("*")];
  own.forEach((element, place) => {
    const style = getComputedStyle(element);
    for (const name of KEPT) copies[place].style.setProperty(name, style.getPropertyValue(name));
  });
  const { width, height } = svg.getBoundingClientRect();
  copy.setAttribute("width", Math.round(width));
  copy.setAttribute("height", Math.round(height));
  copy.style.background = getComputedStyle(document.body).backgroundColor;
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  return new Blob([new XMLSerializer().serializeToString(copy)], { type: "image/svg+xml" });
}
for (const button of document.querySelectorAll("button[data-save]")) {
  const figure = button.closest("figure");
  const name = figure.id.replace("figure-", "");
  button.addEventListener("click", () => {
    const svg = [...figure.querySelectorAll("svg")].find((each) => each.getClientRects().length);
    const source = standalone(svg);
    if (button.dataset.save === "svg") return download(source, `${name}.svg`);
    const picture = new Image();
    picture.onload = () => {
      const canvas = document.createElement("canvas");
      canvas.width = 2 * picture.width;
      canvas.height = 2 * picture.height;
      canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
      canvas.toBlob((blob) => download(blob, `${name}.png`));
    };
    picture.src = URL.createObjectURL(source);
  });
}
