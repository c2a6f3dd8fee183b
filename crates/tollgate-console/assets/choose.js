// Selection of rows: shows the number of chosen rows, and chooses all of them. Boxes and buttons also work without this script: the
// style sheet shows the actions of a list once a row is chosen.
const boxes = () => [...document.querySelectorAll("[data-choice]")];

function show() {
  const all = boxes();
  const count = all.filter((box) => box.checked).length;
  const text = document.querySelector("[data-chosen]");
  if (!text) return;
  for (const label of document.querySelectorAll("[data-choose]")) {
    label.hidden = false;
    const box = label.querySelector("input");
    box.checked = count > 0 && count === all.length;
    box.indeterminate = count > 0 && count < all.length;
  }
  text.textContent = text.dataset.chosen.replace("{count}", new Intl.NumberFormat(document.documentElement.lang).format(count));
}

document.addEventListener("change", (event) => {
  const whole = event.target.closest("[data-choose] input");
  if (whole) for (const box of boxes()) box.checked = whole.checked;
  if (whole || event.target.matches("[data-choice]")) show();
});
document.addEventListener("rows:new", show);
show();
