// A stored conversation goes on in the playground, which takes it from this tab's storage: an address would be too short for it.
for (const button of document.querySelectorAll("[data-continue]")) {
  button.hidden = false;
  button.addEventListener("click", () => {
    try { sessionStorage.setItem("tollgate-continue", button.dataset.continue); } catch { /* The playground is empty then. */ }
    location.assign(button.dataset.to);
  });
}
