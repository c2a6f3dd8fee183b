//! The scripted provider as a program: `scripted-provider [--listen ADDR]`; prints its address when it is ready.

fn main() -> std::io::Result<()> {
    let asked = std::env::args().skip_while(|argument| argument != "--listen").nth(1);
    let address = asked.as_deref().unwrap_or("127.0.0.1:0").parse().map_err(std::io::Error::other)?;
    #[expect(clippy::print_stdout, reason = "whoever started it reads the address")]
    tollgate_testkit::provider::serve(address, |address| println!("{address}"))
}
