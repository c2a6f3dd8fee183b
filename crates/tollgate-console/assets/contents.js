// Continues a stored conversation in the playground, which reads it from this tab's storage, because it would be too long for an
// address.
for (const button of document.querySelectorAll("[data-continue]")) {
  button.hidden = false;
  button.addEventListener("click", () => {
    try { sessionStorage.setItem("tollgate-continue", button.dataset.continue); } catch { /* The playground is empty then. */ }
    location.assign(button.dataset.to);
  });
}
