# Homebrew's formula: scripts/release.sh OUT URL writes it with an address and a checksum.
class Ringmaster < Formula
  desc "Inference server that divides mixture-of-experts models among hosts"
  homepage "@URL@"
  url "@URL@/ringmaster-@VERSION@-source.tar.gz"
  version "@VERSION@"
  sha256 "@SHA256@"
  license "MIT"

  depends_on "go" => :build

  def install
    ENV["CGO_ENABLED"] = "1"
    system "go", "build", *std_go_args(ldflags: "-s -w"), "./cmd/server"
    generate_completions_from_executable(bin/"ringmaster", "completion")
    system bin/"ringmaster", "man", "man"
    man1.install Dir["man/*.1"]
    pkgshare.install "packaging/ringmaster.toml"
  end

  service do
    run [opt_bin/"ringmaster", "serve"]
    keep_alive true
  end

  test do
    assert_match "ringmaster version", shell_output("#{bin}/ringmaster --version")
  end
end
