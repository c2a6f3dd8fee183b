// What an authenticator app computes (RFC 6238).
import { createHmac } from "node:crypto";

const STEP_S = 30;

// The code of a secret, so many steps from now. The gateway takes the codes of the steps before and after, too, so the code of this step or
// of the next one is still accepted if a step ends while the form is sent.
export function codeOf(secret, later = 0) {
  const bits = [...secret].map((char) => "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567".indexOf(char).toString(2).padStart(5, "0")).join("");
  const step = Buffer.alloc(8);
  step.writeBigUInt64BE(BigInt(Math.floor(Date.now() / 1000 / STEP_S) + later));
  const key = Buffer.from(bits.match(/.{8}/g).map((byte) => parseInt(byte, 2)));
  const digest = createHmac("sha1", key).update(step).digest();
  const number = digest.readUInt32BE(digest[19] & 15) & 0x7fffffff;
  return String(number % 1_000_000).padStart(6, "0");
}
