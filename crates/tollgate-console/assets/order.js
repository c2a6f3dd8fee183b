// Choices whose order matters: a button moves one before its predecessor. Forms send choices in the order of the page.
function arm(list) {
  const items = [...list.children];
  list.dataset.armed = "";
  if (items.length < 2) return;
  for (const label of items) {
    const item = document.createElement("div");
    const button = document.createElement("button");
    item.className = "row";
    button.type = "button";
    button.className = "btn ghost small icon";
    button.textContent = "\u2191";
    button.title = list.dataset.order.replace("{name}", label.querySelector("input").value);
    button.setAttribute("aria-label", button.title);
    label.replaceWith(item);
    item.append(button, label);
    button.addEventListener("click", () => {
      item.previousElementSibling?.before(item);
      button.focus();
      list.dispatchEvent(new Event("input", { bubbles: true }));
    });
  }
  list.addEventListener("input", () => show(list));
  show(list);
}

// The first choice keeps its button, so that the focus stays where it is.
function show(list) {
  for (const item of list.children) item.firstElementChild.ariaDisabled = String(item === list.firstElementChild);
}

function armAll() {
  for (const list of document.querySelectorAll("[data-order]:not([data-armed])")) arm(list);
}
armAll();
document.addEventListener("rows:new", armAll);
