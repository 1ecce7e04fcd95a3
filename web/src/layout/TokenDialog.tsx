import { Button, Modal, PasswordInput } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useState, useSyncExternalStore } from "react";
import { onRefusedChange, storedToken, storeToken, tokenRefused } from "../api/token";

/** Asks for the bearer token once the API has answered 401; all queries run again when one is given. */
export function TokenDialog() {
  const open = useSyncExternalStore(onRefusedChange, tokenRefused);
  const queries = useQueryClient();
  const [value, setValue] = useState("");
  const hadToken = storedToken() !== null;

  const submit = (event: FormEvent) => {
    event.preventDefault();
    const token = value.trim();
    if (token === "") return;
    storeToken(token);
    setValue("");
    void queries.resetQueries();
  };

  return (
    <Modal
      opened={open}
      onClose={() => {}}
      withCloseButton={false}
      closeOnEscape={false}
      closeOnClickOutside={false}
      title="This server asks for a token"
      centered
    >
      <form onSubmit={submit}>
        <p className="dim">
          The operator of this Atoll has set a bearer token. It is kept in this tab only, until the tab is closed.
        </p>
        <PasswordInput
          mt="sm"
          label="Token"
          value={value}
          onChange={(event) => setValue(event.currentTarget.value)}
          error={hadToken ? "The server did not take the last token." : undefined}
          autoComplete="off"
          data-autofocus
          required
          withAsterisk={false}
        />
        <Button type="submit" mt="md" fullWidth>
          Use this token
        </Button>
      </form>
    </Modal>
  );
}
