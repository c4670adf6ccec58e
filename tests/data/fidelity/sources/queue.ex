defmodule Shop.Queue do
  @moduledoc """
  A queue of names (first in, first out).
  """

  defstruct names: [], limit: 10

  def push(%__MODULE__{names: names, limit: limit} = queue, name) do
    if length(names) < limit do
      {:ok, %{queue | names: names ++ [name]}}
    else
      {:error, "full (#{limit})"}
    end
  end

  def each(queue, fun) do
    Enum.each(queue.names, fn name ->
      fun.(String.upcase(name))
    end)
  end
end
