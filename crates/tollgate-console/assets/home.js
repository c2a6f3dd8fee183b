// The first steps: the first request completes the last one. The stream only announces that a record was booked; the page is then
// loaded again to show it.
const steps = document.querySelector("[data-steps]");
const state = steps?.querySelector("[data-step-state]");

if (state) {
  const live = steps.querySelector("[data-step-live]");
  const stream = new EventSource(steps.dataset.live);
  live.hidden = false;
  stream.addEventListener("open", () => { live.classList.remove("paused"); state.textContent = steps.dataset.waiting; });
  stream.addEventListener("error", () => { live.classList.add("paused"); state.textContent = steps.dataset.lost; });
  stream.addEventListener("record", (event) => {
    const { outcome } = JSON.parse(event.data);
    if (outcome !== "completed") return location.reload();
    stream.close();
    for (const step of steps.querySelectorAll("li")) {
      step.className = "done";
      step.removeAttribute("aria-current");
    }
    live.hidden = true;
    state.parentElement.className = "st ok";
    state.textContent = steps.dataset.arrived;
  });
  steps.querySelector("[data-copy]").addEventListener("click", () => {
    const copied = steps.querySelector("[data-step-copy]");
    copied.className = "done";
    copied.removeAttribute("aria-current");
    steps.querySelector("[data-step-request]").setAttribute("aria-current", "step");
  });
}
