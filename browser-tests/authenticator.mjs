// Chromium's virtual authenticator.

// A platform authenticator whose owner is always present, and verified unless a test changes that.
export async function authenticator(page) {
  const client = await page.context().newCDPSession(page);
  await client.send("WebAuthn.enable");
  const { authenticatorId } = await client.send("WebAuthn.addVirtualAuthenticator", { options: {
    protocol: "ctap2", transport: "internal", hasResidentKey: true, hasUserVerification: true, isUserVerified: true,
    automaticPresenceSimulation: true,
  } });
  return {
    verifies: (isUserVerified) => client.send("WebAuthn.setUserVerified", { authenticatorId, isUserVerified }),
    credentials: async () => (await client.send("WebAuthn.getCredentials", { authenticatorId })).credentials,
  };
}
