import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

export default defineConfig({
  plugins: [react()],
  server: {
    // `npm run dev` beside a running `atoll serve`.
    proxy: { "/api": "http://127.0.0.1:8750" },
  },
  build: {
    outDir: "dist",
    assetsInlineLimit: 0, // The API's content security policy allows no data: scripts.
    chunkSizeWarningLimit: 600,
  },
  test: {
    environment: "node",
    css: true, // The theme test reads the style sheet.
    include: ["src/**/*.test.{ts,tsx}"],
  },
});
