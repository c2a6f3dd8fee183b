// Sends a form whose answer comes in parts and shows them where they belong: <form data-stages="id of the list">. Without a script the
// answer is a page of its own.
async function run(form, list) {
  list.replaceChildren();
  const answer = await fetch(form.action, { method: "POST", body: new URLSearchParams(new FormData(form)), headers: { "hx-request": "true" } });
  if (!answer.ok || answer.redirected || !answer.body) return false;
  const decoder = new TextDecoder();
  for await (const chunk of answer.body) list.insertAdjacentHTML("beforeend", decoder.decode(chunk, { stream: true }));
  return true;
}

for (const form of document.querySelectorAll("form[data-stages]")) {
  const list = document.getElementById(form.dataset.stages);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const button = form.querySelector("button[type=submit]");
    button.setAttribute("aria-busy", "true");
    button.disabled = true;
    // An answer that is no list is shown as the page that it is.
    const shown = await run(form, list).catch(() => false);
    button.removeAttribute("aria-busy");
    button.disabled = false;
    if (!shown && !list.firstElementChild) form.submit();
  });
}
