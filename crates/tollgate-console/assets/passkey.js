// Passkeys: forms that the browser completes with a passkey. They are shown if the browser supports passkeys and the page is at the
// origin of the relying party. The browser's answer is written to the form's fields, and the form is sent like any other.
const decode = (text) => Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
const encode = (bytes) =>
  btoa(String.fromCharCode(...new Uint8Array(bytes))).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");

async function create(form) {
  const asked = JSON.parse(form.dataset.create);
  const { response } = await navigator.credentials.create({ publicKey: {
    challenge: decode(asked.challenge),
    rp: { id: asked.rpId, name: asked.rpName },
    user: { id: decode(asked.userId), name: asked.userName, displayName: asked.userName },
    pubKeyCredParams: asked.algorithms.map((alg) => ({ type: "public-key", alg })),
    excludeCredentials: asked.exclude.map((id) => ({ type: "public-key", id: decode(id) })),
    authenticatorSelection: { residentKey: "required", requireResidentKey: true, userVerification: "required" },
    attestation: "none",
    timeout: asked.timeout,
  } });
  return { client_data: encode(response.clientDataJSON), attestation_object: encode(response.attestationObject) };
}

async function get(form) {
  const answer = await fetch(form.dataset.get, { method: "POST" });
  if (!answer.ok) throw new Error(`status ${answer.status}`);
  const asked = await answer.json();
  const { rawId, response } = await navigator.credentials.get({ publicKey: {
    challenge: decode(asked.challenge), rpId: asked.rp_id, userVerification: "required", timeout: asked.timeout_ms,
  } });
  return {
    credential: encode(rawId),
    client_data: encode(response.clientDataJSON),
    authenticator_data: encode(response.authenticatorData),
    signature: encode(response.signature),
    user_handle: encode(response.userHandle ?? new Uint8Array()),
    // The checkbox is in the password form.
    remember: document.getElementById("remember")?.checked ? "true" : "",
  };
}

// Browsers say "not allowed" for a dialog that was closed and for one that was left open for too long.
function say(form, error) {
  const { cancelled, exists, failed } = form.dataset;
  return error.name === "NotAllowedError" || error.name === "AbortError" ? cancelled : error.name === "InvalidStateError" ? exists : failed;
}

const parts = document.querySelectorAll("[data-passkey-part]");
const fault = document.querySelector("[data-passkey-fault]");
const isHere = (origin) => window.isSecureContext && "PublicKeyCredential" in window && location.origin === origin;

for (const part of parts) part.hidden = isHere(part.dataset.passkeyPart) === (part.dataset.without !== undefined);

for (const form of document.querySelectorAll("form[data-passkey]")) {
  const button = form.querySelector("button");
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (button.disabled) return;
    button.disabled = true;
    fault.hidden = true;
    try {
      if (!isHere(form.dataset.passkey)) throw new Error("no passkeys");
      const fields = await (form.dataset.create ? create(form) : get(form));
      for (const [name, value] of Object.entries(fields)) form.elements[name].value = value;
      form.submit();
    } catch (error) {
      fault.querySelector(".say").textContent = say(form, error);
      fault.hidden = false;
      button.disabled = false;
      button.removeAttribute("aria-busy");
      button.focus();
    }
  });
}
