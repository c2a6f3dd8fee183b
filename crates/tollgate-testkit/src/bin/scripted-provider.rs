//! `scripted-provider [--listen ADDRESS]`: serves the scripted provider, and prints its address when it is ready.

fn main() -> std::io::Result<()> {
    let listen = std::env::args().skip_while(|argument| argument != "--listen").nth(1);
    let address = listen.as_deref().unwrap_or("127.0.0.1:0").parse().map_err(std::io::Error::other)?;
    #[expect(clippy::print_stdout, reason = "the program that starts it reads the address")]
    tollgate_testkit::provider::serve(address, |address| println!("{address}"))
}
