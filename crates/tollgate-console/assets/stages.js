// Sends a form whose answer comes in parts and shows them where they belong: <form data-stages="id of the list">. Without a script the
// answer is a page of its own. Every complete answer ends with an item of the class "end"; without it the answer is marked as
// incomplete.
const END = "</li>";

async function run(form, list) {
  const answer = await fetch(form.action, { method: "POST", body: new URLSearchParams(new FormData(form)), headers: { "hx-request": "true" } });
  if (!answer.ok || answer.redirected || !answer.body) return;
  const decoder = new TextDecoder();
  let rest = "";
  for await (const chunk of answer.body) {
    // The network may split the answer anywhere: only whole items are shown.
    rest += decoder.decode(chunk, { stream: true });
    const end = rest.lastIndexOf(END) + END.length;
    if (end < END.length) continue;
    list.insertAdjacentHTML("beforeend", rest.slice(0, end));
    rest = rest.slice(end);
  }
}

function sayIncomplete(form, list) {
  const item = document.querySelector("template[data-stages-lost]").content.cloneNode(true);
  item.querySelector("button").addEventListener("click", () => form.requestSubmit());
  list.append(item);
}

for (const form of document.querySelectorAll("form[data-stages]")) {
  const list = document.getElementById(form.dataset.stages);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const button = form.querySelector("button[type=submit]");
    button.setAttribute("aria-busy", "true");
    button.disabled = true;
    list.replaceChildren();
    const isWhole = await run(form, list).then(() => true, () => false);
    button.removeAttribute("aria-busy");
    button.disabled = false;
    // An answer that is not a list is shown as a page.
    if (isWhole && !list.firstElementChild) form.submit();
    else if (!isWhole || !list.lastElementChild.classList.contains("end")) sayIncomplete(form, list);
  });
}
