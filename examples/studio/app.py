from swift_vlrft.studio.page import serve

serve("0.0.0.0", 7860)
